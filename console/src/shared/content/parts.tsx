// Renders parts: text, JSON, images, files to download, URLs.

import { useEffect, useMemo, useState } from "preact/hooks";
import { baseUrl } from "../api";
import { formatBytes } from "../format";
import type { Part } from "../messages";
import { Link, SAFE_URL } from "./elements";
import { formatOf, JsonContent, TextContent, type Format } from "./text";

const SVG_TYPE = "image/svg+xml";
const IMAGE_TYPES = /^image\/(png|jpeg|gif|webp|avif|svg\+xml)$/;

/** Larger files have no preview. */
const MAX_PREVIEW_BYTES = 1024 * 1024;

interface PartsProps {
  parts: readonly Part[];
  /** How texts without a media type are shown: those of agents are often Markdown. */
  defaultFormat?: Format;
  /** The last text may still grow. */
  live?: boolean;
  /** Long texts are not folded. */
  isWhole?: boolean;
}

export function Parts({ parts, defaultFormat = "plain", live = false, isWhole = false }: PartsProps) {
  return (
    <div class="parts">
      {parts.map((part, index) => (
        <PartView key={index} part={part} defaultFormat={defaultFormat} live={live && index === parts.length - 1} isWhole={isWhole} />
      ))}
    </div>
  );
}

function PartView({ part, defaultFormat, live, isWhole }: { part: Part; defaultFormat: Format; live: boolean; isWhole: boolean }) {
  if (part.text !== undefined) return <TextContent text={part.text} live={live} isWhole={isWhole} {...formatOf(part.mediaType, part.filename, defaultFormat)} />;
  if (part.raw !== undefined) return <FilePart part={part} raw={part.raw} />;
  if (part.url !== undefined) return <UrlPart part={part} url={part.url} />;
  if (part.data !== undefined) return <JsonContent value={part.data} />;
  return <p class="faint">a part of an unknown kind</p>;
}

function standardBase64(raw: string): string {
  return raw.replaceAll("-", "+").replaceAll("_", "/");
}

function decodeBase64(raw: string): Uint8Array<ArrayBuffer> {
  const binary = atob(standardBase64(raw));
  return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}

/** The object URL of some bytes, while it is shown. */
function useObjectUrl(content: Uint8Array<ArrayBuffer>, mediaType = ""): string {
  const [url, setUrl] = useState("");
  useEffect(() => {
    // Only images without scripts keep their type: an opened file must not run as a page of this server.
    const type = IMAGE_TYPES.test(mediaType) && mediaType !== SVG_TYPE ? mediaType : "application/octet-stream";
    const objectUrl = URL.createObjectURL(new Blob([content], { type }));
    setUrl(objectUrl);
    return () => URL.revokeObjectURL(objectUrl);
  }, [content, mediaType]);
  return url;
}

/** The text of a file that is likely to be one; undefined for others. */
function textOf(content: Uint8Array, { mediaType = "", filename }: Part): string | undefined {
  const { format } = formatOf(mediaType, filename);
  if (content.length > MAX_PREVIEW_BYTES || (format === "plain" && !mediaType.startsWith("text/"))) return undefined;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(content);
  } catch {
    return undefined;
  }
}

function FilePart({ part, raw }: { part: Part; raw: string }) {
  const content = useMemo(() => decodeBase64(raw), [raw]);
  const url = useObjectUrl(content, part.mediaType);
  const name = part.filename || "file";
  const description = [part.mediaType, formatBytes(content.length)].filter(Boolean).join(", ");
  const image = IMAGE_TYPES.test(part.mediaType ?? "");
  // Browsers run no scripts of images, and open no page at a data: URL.
  const source = part.mediaType === SVG_TYPE ? `data:${SVG_TYPE};base64,${standardBase64(raw)}` : url;
  const text = useMemo(() => (image ? undefined : textOf(content, part)), [content, part.mediaType, part.filename]);
  if (!url) return null;
  return (
    <figure>
      {image && <img src={source} alt={part.filename || "unnamed image"} />}
      <figcaption>
        <a href={url} download={name}>
          {name}
        </a>{" "}
        <span class="faint">{description}</span>
      </figcaption>
      {text && <TextContent text={text} {...formatOf(part.mediaType, part.filename)} />}
    </figure>
  );
}

/** A link; images of this server are shown, those of others would be requests that leave it. */
function UrlPart({ part, url }: { part: Part; url: string }) {
  const name = part.filename || url;
  const isOwnImage = SAFE_URL.test(url) && url.startsWith(baseUrl.origin + "/") && IMAGE_TYPES.test(part.mediaType ?? "");
  return (
    <figure>
      {isOwnImage && <img src={url} alt={part.filename || "unnamed image"} />}
      <figcaption>
        {SAFE_URL.test(url) ? <Link href={url}>{name}</Link> : <code>{name}</code>} <span class="faint">{part.mediaType}</span>
      </figcaption>
    </figure>
  );
}
