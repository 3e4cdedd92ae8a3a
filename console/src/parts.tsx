// Renders parts: text, JSON, images, files to download, URLs.

import { useEffect, useState } from "preact/hooks";
import { bytes } from "./say";
import type { Part } from "./wire";

/** Of longer text only the end is shown, because a browser lays out all shown text again for each chunk. */
const LONGEST = 64 * 1024;

const IMAGES = /^image\/(png|jpeg|gif|webp|avif|svg\+xml)$/;

export function Parts({ parts }: { parts: readonly Part[] }) {
  return (
    <div class="parts">
      {parts.map((part, index) => (
        <One key={index} part={part} />
      ))}
    </div>
  );
}

function One({ part }: { part: Part }) {
  if (part.text !== undefined) return <Text text={part.text} />;
  if (part.raw !== undefined) return <File part={part} />;
  if (part.url !== undefined) return <Address part={part} url={part.url} />;
  if (part.data !== undefined) return <pre class="data">{JSON.stringify(part.data, null, 2)}</pre>;
  return <p class="faint">a part of an unknown kind</p>;
}

function Text({ text }: { text: string }) {
  const [all, setAll] = useState(false);
  if (all || text.length <= LONGEST) return <pre class="text">{text}</pre>;
  return (
    <>
      <p class="faint">
        The last {bytes(LONGEST)} of {bytes(text.length)}.{" "}
        <button type="button" class="plain" onClick={() => setAll(true)}>
          Show all
        </button>
      </p>
      <pre class="text">{text.slice(-LONGEST)}</pre>
    </>
  );
}

/** The object URL of a part's bytes, while it is shown. */
function useBlob(part: Part): { url: string; size: number } {
  const [made, setMade] = useState({ url: "", size: 0 });
  useEffect(() => {
    const binary = atob((part.raw ?? "").replaceAll("-", "+").replaceAll("_", "/"));
    const content = Uint8Array.from(binary, (letter) => letter.charCodeAt(0));
    // Only images keep their type: an opened file must not run as a page of this server.
    const type = IMAGES.test(part.mediaType ?? "") ? part.mediaType : "application/octet-stream";
    const url = URL.createObjectURL(new Blob([content], { type }));
    setMade({ url, size: content.length });
    return () => URL.revokeObjectURL(url);
  }, [part.raw, part.mediaType]);
  return made;
}

function File({ part }: { part: Part }) {
  const { url, size } = useBlob(part);
  const name = part.filename || "file";
  const about = [part.mediaType, bytes(size)].filter(Boolean).join(", ");
  if (!url) return null;
  return (
    <figure>
      {IMAGES.test(part.mediaType ?? "") && <img src={url} alt={part.filename || "unnamed image"} />}
      <figcaption>
        <a href={url} download={name}>
          {name}
        </a>{" "}
        <span class="faint">{about}</span>
      </figcaption>
    </figure>
  );
}

function Address({ part, url }: { part: Part; url: string }) {
  const safe = /^https?:\/\//i.test(url);
  const name = part.filename || url;
  return (
    <p class="address">
      {safe ? (
        <a href={url} target="_blank" rel="noopener noreferrer">
          {name}
        </a>
      ) : (
        <code>{name}</code>
      )}{" "}
      <span class="faint">{part.mediaType}</span>
    </p>
  );
}
