// Renders parts: text, JSON, images, files to download, URLs.

import { useEffect, useMemo, useState } from "preact/hooks";
import { Content, Data, formatOf, type Format } from "./text";
import { Link, LINKED } from "./elements";
import { bytes } from "../format";
import { base } from "../api";
import type { Part } from "../messages";

const IMAGES = /^image\/(png|jpeg|gif|webp|avif|svg\+xml)$/;

/** Larger files have no preview. */
const PREVIEWED = 1024 * 1024;

interface Shown {
  parts: readonly Part[];
  /** How texts without a media type are shown: those of agents are often Markdown. */
  usual?: Format;
  /** The last text may still grow. */
  live?: boolean;
}

export function Parts({ parts, usual = "plain", live = false }: Shown) {
  return (
    <div class="parts">
      {parts.map((part, index) => (
        <One key={index} part={part} usual={usual} live={live && index === parts.length - 1} />
      ))}
    </div>
  );
}

function One({ part, usual, live }: { part: Part; usual: Format; live: boolean }) {
  if (part.text !== undefined) return <Content text={part.text} live={live} {...formatOf(part.mediaType, part.filename, usual)} />;
  if (part.raw !== undefined) return <File part={part} raw={part.raw} />;
  if (part.url !== undefined) return <Address part={part} url={part.url} />;
  if (part.data !== undefined) return <Data value={part.data} />;
  return <p class="faint">a part of an unknown kind</p>;
}

function decoded(raw: string): Uint8Array<ArrayBuffer> {
  const binary = atob(raw.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(binary, (letter) => letter.charCodeAt(0));
}

/** The object URL of some bytes, while it is shown. */
function useBlob(content: Uint8Array<ArrayBuffer>, mediaType = ""): string {
  const [url, setUrl] = useState("");
  useEffect(() => {
    // Only images keep their type: an opened file must not run as a page of this server.
    const type = IMAGES.test(mediaType) ? mediaType : "application/octet-stream";
    const made = URL.createObjectURL(new Blob([content], { type }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [content, mediaType]);
  return url;
}

/** The text of a file that is likely to be one; undefined for others. */
function textOf(content: Uint8Array, { mediaType = "", filename }: Part): string | undefined {
  const { format } = formatOf(mediaType, filename);
  if (content.length > PREVIEWED || (format === "plain" && !mediaType.startsWith("text/"))) return undefined;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(content);
  } catch {
    return undefined;
  }
}

function File({ part, raw }: { part: Part; raw: string }) {
  const content = useMemo(() => decoded(raw), [raw]);
  const url = useBlob(content, part.mediaType);
  const name = part.filename || "file";
  const about = [part.mediaType, bytes(content.length)].filter(Boolean).join(", ");
  const image = IMAGES.test(part.mediaType ?? "");
  const text = useMemo(() => (image ? undefined : textOf(content, part)), [content, part.mediaType, part.filename]);
  if (!url) return null;
  return (
    <figure>
      {image && <img src={url} alt={part.filename || "unnamed image"} />}
      <figcaption>
        <a href={url} download={name}>
          {name}
        </a>{" "}
        <span class="faint">{about}</span>
      </figcaption>
      {text && <Content text={text} {...formatOf(part.mediaType, part.filename)} />}
    </figure>
  );
}

/** A link; images of this server are shown, those of others would be requests that leave it. */
function Address({ part, url }: { part: Part; url: string }) {
  const name = part.filename || url;
  const ours = LINKED.test(url) && url.startsWith(base.origin + "/") && IMAGES.test(part.mediaType ?? "");
  return (
    <figure>
      {ours && <img src={url} alt={part.filename || "unnamed image"} />}
      <figcaption>
        {LINKED.test(url) ? <Link href={url}>{name}</Link> : <code>{name}</code>} <span class="faint">{part.mediaType}</span>
      </figcaption>
    </figure>
  );
}
