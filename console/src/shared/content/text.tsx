// Shows a text by its media type: Markdown, JSON, a table, code or plain. Long texts are folded.

import Papa from "papaparse";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Code, isLanguage } from "./code";
import { Link } from "./elements";
import { JsonTree } from "./json_tree";
import { hasMarkdown, Markdown } from "./markdown";
import { bytes, plural } from "../format";
import type { Json } from "../messages";

/** A folded text has this many lines, and characters. */
const LINES = 20;
const FOLDED = 4_000;

/** Longer texts are neither parsed nor shown whole, because a browser lays out all shown text again for each chunk. */
const LONGEST = 32 * 1024;
const LARGEST = 1024 * 1024;

const ROWS = 50;
const COLUMNS = 30;

export type Format = "plain" | "markdown" | "json" | "csv" | "code";

const NAMES: Record<string, string> = { md: "markdown", markdown: "markdown", csv: "csv", tsv: "csv", json: "json" };

/** How a text is shown, and in which language if it is code. `usual`: without a media type and a file name. */
export function formatOf(mediaType = "", filename = "", usual: Format = "plain"): { format: Format; language: string } {
  const type = (mediaType.split(";")[0] ?? "").trim().toLowerCase();
  const extension = /\.(\w+)$/.exec(filename)?.[1]?.toLowerCase() ?? "";
  const kind = type.replace(/^.*[/+]/, "").replace(/^(x-|vnd\.)+/, "").replace(/^tab-separated-values$/, "tsv");
  if (!type && !extension) return { format: usual, language: "" };
  for (const name of type === "text/plain" || type === "application/octet-stream" ? [extension] : [kind, extension]) {
    const known = NAMES[name];
    if (known) return { format: known as Format, language: name };
    if (isLanguage(name)) return { format: "code", language: name };
  }
  return { format: "plain", language: "" };
}

interface Shown {
  text: string;
  /** The value of a text in JSON, if it is known. */
  value?: Json;
  format: Format;
  language?: string;
  /** The text may still grow: its end is shown. */
  live?: boolean;
}

export function Content({ text, value, format, language = "", live = false }: Shown) {
  const [raw, setRaw] = useState(false);
  const json = useMemo(() => value ?? (format === "json" && text.length <= LARGEST ? parsed(text) : undefined), [text, value, format]);
  const rendered = (format === "markdown" && hasMarkdown(text)) || format === "csv" || json !== undefined;
  return (
    <div class="content">
      {rendered && (
        <button type="button" class="plain raw" aria-pressed={raw} onClick={() => setRaw(!raw)}>
          Raw
        </button>
      )}
      {json !== undefined && !raw ? (
        <JsonTree value={json} />
      ) : format === "csv" && !raw ? (
        <Rows text={text} />
      ) : (
        <Folded text={text} live={live}>
          {(part) =>
            rendered && !raw ? (
              <Markdown text={part} />
            ) : format === "code" || (rendered && format !== "csv") ? (
              <Code text={part} language={raw ? format : language} />
            ) : (
              <Plain text={part} />
            )
          }
        </Folded>
      )}
    </div>
  );
}

/** Data of a part: a tree, or its JSON. */
export function Data({ value }: { value: Json }) {
  const text = useMemo(() => JSON.stringify(value, null, 2), [value]);
  return <Content text={text} value={value} format="json" />;
}

function parsed(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}

/** The beginning of a long text, all of it on request, and the end of a text that grows. */
function Folded({ text, live, children }: { text: string; live: boolean; children: (part: string) => ComponentChildren }) {
  const [chosen, setOpen] = useState<boolean>();
  const followed = useRef(false); // a text that was seen to grow stays unfolded
  followed.current ||= live;
  const open = chosen ?? followed.current;
  const [most, setMost] = useState(LONGEST);
  const lines = useMemo(() => countLines(text), [text]);
  const begins = useMemo(() => beginning(text), [text]);
  if (begins.length === text.length) return <>{children(text)}</>;
  if (!open) {
    return (
      <div class="folded">
        {children(begins)}
        <button type="button" class="unfold" onClick={() => setOpen(true)}>
          Show all: {plural(lines, "line")}, {bytes(text.length)}
        </button>
      </div>
    );
  }
  const cut = text.length > most;
  const part = !cut ? text : live ? text.slice(-most) : text.slice(0, most);
  const note = cut && (
    <p class="faint">
      The {live ? "last" : "first"} {bytes(most)} of {bytes(text.length)}.{" "}
      {most < LARGEST && (
        <button type="button" class="plain" onClick={() => setMost(LARGEST)}>
          Show more
        </button>
      )}{" "}
      <Download text={text} />
    </p>
  );
  return (
    <div>
      {live && note}
      {/* a whole text that is too long to be parsed is shown as it is */}
      {part.length <= LONGEST ? children(part) : <pre class="text">{part}</pre>}
      {!live && note}
      {!live && (
        <button type="button" class="unfold" onClick={() => setOpen(false)}>
          Show less
        </button>
      )}
    </div>
  );
}

function countLines(text: string): number {
  let count = 1;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) count++;
  return count;
}

/** The first lines of a text; the text itself if it is hardly longer. */
function beginning(text: string): string {
  let end = -1;
  for (let line = 0; line < LINES; line++) {
    end = text.indexOf("\n", end + 1);
    if (end < 0) break;
  }
  const first = end < 0 || !text.slice(end, end + FOLDED).trim() ? text : text.slice(0, end);
  return first.length > FOLDED ? first.slice(0, FOLDED) : first;
}

function Download({ text }: { text: string }) {
  const [url, setUrl] = useState("");
  useEffect(() => {
    const made = URL.createObjectURL(new Blob([text], { type: "application/octet-stream" }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [text]);
  return (
    <a href={url} download="text.txt">
      Download
    </a>
  );
}

const ADDRESS = /\b(?:https?:\/\/|mailto:)[^\s<>"'`]{1,2000}/gi;

/** Text with its addresses as links. */
export function Plain({ text }: { text: string }) {
  const shown = useMemo(() => linked(text), [text]);
  return <pre class="text">{shown}</pre>;
}

function linked(text: string): ComponentChildren[] {
  const parts: ComponentChildren[] = [];
  let after = 0;
  for (const { 0: found, index } of text.matchAll(ADDRESS)) {
    const address = trimmed(found);
    parts.push(text.slice(after, index), <Link href={address}>{address}</Link>);
    after = index + address.length;
  }
  return [...parts, text.slice(after)];
}

/** An address without the punctuation of its sentence, and without a bracket that it does not open. */
function trimmed(address: string): string {
  let extra = address.split(")").length - address.split("(").length;
  let end = address.length;
  for (; /[.,;:!?)\]}*_]/.test(address[end - 1] ?? ""); end--) {
    if (address[end - 1] === ")" && extra-- <= 0) break;
  }
  return address.slice(0, end);
}

/** The first rows of a table in CSV. */
function Rows({ text }: { text: string }) {
  const [most, setMost] = useState(ROWS);
  const { rows, more } = useMemo(() => {
    const whole = text.length <= LARGEST;
    const found = Papa.parse<string[]>(whole ? text : text.slice(0, LARGEST), { preview: most + 2, skipEmptyLines: true });
    return { rows: found.data.slice(0, most + 1), more: found.data.length > most + 1 || !whole };
  }, [text, most]);
  const [head, ...body] = rows;
  if (!head) return <Plain text={text} />;
  const width = Math.max(...rows.map((row) => row.length));
  const columns = Array.from({ length: Math.min(width, COLUMNS) }, (_, column) => column);
  return (
    <>
      <div class="wide" tabIndex={0} role="group" aria-label="Table">
        <table>
          <thead>
            <tr>
              {columns.map((column) => (head[column] ? <th key={column} scope="col">{head[column]}</th> : <td key={column} />))}
            </tr>
          </thead>
          <tbody>
            {body.map((row, index) => (
              <tr key={index}>
                {columns.map((column) => (
                  <td key={column}>{row[column]}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {(more || width > COLUMNS) && (
        <p class="faint">
          {more && `The first ${plural(body.length, "row")}. `}
          {width > COLUMNS && `The first ${COLUMNS} of ${width} columns. `}
          {more && body.length === most && most < 10 * ROWS && (
            <button type="button" class="plain" onClick={() => setMost(10 * ROWS)}>
              Show more
            </button>
          )}
        </p>
      )}
    </>
  );
}
