// Shows a text by its media type: Markdown, JSON, a table, code or plain. Long texts are collapsed.

import Papa from "papaparse";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { formatBytes, plural } from "../format";
import type { Json } from "../messages";
import { Code, isHighlighted } from "./code";
import { Link } from "./elements";
import { JsonTree } from "./json_tree";
import { hasMarkdown, Markdown } from "./markdown";

/** Lines and characters of a collapsed text. */
const COLLAPSED_LINES = 20;
const COLLAPSED_LENGTH = 4_000;

/** Longer texts are neither parsed nor shown whole, because a browser lays out all shown text again for each chunk. */
const MAX_RENDERED_LENGTH = 32 * 1024;
const MAX_SHOWN_LENGTH = 1024 * 1024;

const INITIAL_ROWS = 50;
const MAX_COLUMNS = 30;

export type Format = "plain" | "markdown" | "json" | "csv" | "code";

const FORMATS: Record<string, string> = { md: "markdown", markdown: "markdown", csv: "csv", tsv: "csv", json: "json" };

/** The format of a text, and its language if it is code. `defaultFormat`: without a media type and a file name. */
export function formatOf(mediaType = "", filename = "", defaultFormat: Format = "plain"): { format: Format; language: string } {
  const type = (mediaType.split(";")[0] ?? "").trim().toLowerCase();
  const extension = /\.(\w+)$/.exec(filename)?.[1]?.toLowerCase() ?? "";
  const kind = type
    .replace(/^.*[/+]/, "")
    .replace(/^(x-|vnd\.)+/, "")
    .replace(/^tab-separated-values$/, "tsv");
  if (!type && !extension) return { format: defaultFormat, language: "" };
  for (const name of type === "text/plain" || type === "application/octet-stream" ? [extension] : [kind, extension]) {
    const known = FORMATS[name];
    if (known) return { format: known as Format, language: name };
    if (isHighlighted(name)) return { format: "code", language: name };
  }
  return { format: "plain", language: "" };
}

interface TextContentProps {
  text: string;
  /** The value of a text in JSON, if it is known. */
  value?: Json;
  format: Format;
  language?: string;
  /** The text may still grow: its end is shown. */
  live?: boolean;
  /** The text is not folded, unless it is too long to be parsed. */
  isWhole?: boolean;
}

export function TextContent({ text, value, format, language = "", live = false, isWhole = false }: TextContentProps) {
  const [raw, setRaw] = useState(false);
  const json = useMemo(() => value ?? (format === "json" && text.length <= MAX_SHOWN_LENGTH ? parseJson(text) : undefined), [text, value, format]);
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
        <CsvTable text={text} />
      ) : (
        <Collapsible text={text} live={live} isWhole={isWhole}>
          {(part) =>
            rendered && !raw ? (
              <Markdown text={part} />
            ) : format === "code" || (rendered && format !== "csv") ? (
              <Code text={part} language={raw ? format : language} />
            ) : (
              <PlainText text={part} />
            )
          }
        </Collapsible>
      )}
    </div>
  );
}

/** Data of a part: a tree, or its JSON. */
export function JsonContent({ value }: { value: Json }) {
  const text = useMemo(() => JSON.stringify(value, null, 2), [value]);
  return <TextContent text={text} value={value} format="json" />;
}

function parseJson(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}

/** The beginning of a long text, all of it on request, and the end of a text that grows. */
function Collapsible({
  text,
  live,
  isWhole,
  children,
}: {
  text: string;
  live: boolean;
  isWhole: boolean;
  children: (part: string) => ComponentChildren;
}) {
  const [chosen, setOpen] = useState<boolean>();
  const hasGrown = useRef(false); // a text that has grown stays expanded
  hasGrown.current ||= live;
  const staysWhole = isWhole && text.length <= MAX_RENDERED_LENGTH;
  const open = chosen ?? (staysWhole || hasGrown.current);
  const [limit, setLimit] = useState(MAX_RENDERED_LENGTH);
  const lines = useMemo(() => countLines(text), [text]);
  const start = useMemo(() => firstLines(text), [text]);
  if (start.length === text.length) return <>{children(text)}</>;
  if (!open) {
    return (
      <div class="folded">
        {children(start)}
        <button type="button" class="unfold" onClick={() => setOpen(true)}>
          Show all: {plural(lines, "line")}, {formatBytes(text.length)}
        </button>
      </div>
    );
  }
  const truncated = text.length > limit;
  const part = !truncated ? text : live ? text.slice(-limit) : text.slice(0, limit);
  const note = truncated && (
    <p class="faint">
      The {live ? "last" : "first"} {formatBytes(limit)} of {formatBytes(text.length)}.{" "}
      {limit < MAX_SHOWN_LENGTH && (
        <button type="button" class="plain" onClick={() => setLimit(MAX_SHOWN_LENGTH)}>
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
      {part.length <= MAX_RENDERED_LENGTH ? children(part) : <pre class="text">{part}</pre>}
      {!live && note}
      {!live && !staysWhole && (
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
function firstLines(text: string): string {
  let end = -1;
  for (let line = 0; line < COLLAPSED_LINES; line++) {
    end = text.indexOf("\n", end + 1);
    if (end < 0) break;
  }
  const first = end < 0 || !text.slice(end, end + COLLAPSED_LENGTH).trim() ? text : text.slice(0, end);
  return first.length > COLLAPSED_LENGTH ? first.slice(0, COLLAPSED_LENGTH) : first;
}

function Download({ text }: { text: string }) {
  const [url, setUrl] = useState("");
  useEffect(() => {
    const objectUrl = URL.createObjectURL(new Blob([text], { type: "application/octet-stream" }));
    setUrl(objectUrl);
    return () => URL.revokeObjectURL(objectUrl);
  }, [text]);
  return (
    <a href={url} download="text.txt">
      Download
    </a>
  );
}

const URL_PATTERN = /\b(?:https?:\/\/|mailto:)[^\s<>"'`]{1,2000}/gi;

/** Text with its addresses as links. */
export function PlainText({ text }: { text: string }) {
  const content = useMemo(() => linkify(text), [text]);
  return <pre class="text">{content}</pre>;
}

function linkify(text: string): ComponentChildren[] {
  const parts: ComponentChildren[] = [];
  let after = 0;
  for (const { 0: found, index } of text.matchAll(URL_PATTERN)) {
    const url = trimUrl(found);
    parts.push(text.slice(after, index), <Link href={url}>{url}</Link>);
    after = index + url.length;
  }
  return [...parts, text.slice(after)];
}

/** An address without the punctuation of its sentence, and without a bracket that it does not open. */
function trimUrl(url: string): string {
  let extra = url.split(")").length - url.split("(").length;
  let end = url.length;
  for (; /[.,;:!?)\]}*_]/.test(url[end - 1] ?? ""); end--) {
    if (url[end - 1] === ")" && extra-- <= 0) break;
  }
  return url.slice(0, end);
}

/** The first rows of a table in CSV. */
function CsvTable({ text }: { text: string }) {
  const [limit, setLimit] = useState(INITIAL_ROWS);
  const { rows, more } = useMemo(() => {
    const whole = text.length <= MAX_SHOWN_LENGTH;
    const found = Papa.parse<string[]>(whole ? text : text.slice(0, MAX_SHOWN_LENGTH), { preview: limit + 2, skipEmptyLines: true });
    return { rows: found.data.slice(0, limit + 1), more: found.data.length > limit + 1 || !whole };
  }, [text, limit]);
  const [head, ...body] = rows;
  if (!head) return <PlainText text={text} />;
  const width = Math.max(...rows.map((row) => row.length));
  const columns = Array.from({ length: Math.min(width, MAX_COLUMNS) }, (_, column) => column);
  return (
    <>
      <div class="wide" tabIndex={0} role="group" aria-label="Table">
        <table>
          <thead>
            <tr>
              {columns.map((column) =>
                head[column] ? (
                  <th key={column} scope="col">
                    {head[column]}
                  </th>
                ) : (
                  <td key={column} />
                ),
              )}
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
      {(more || width > MAX_COLUMNS) && (
        <p class="faint">
          {more && `The first ${plural(body.length, "row")}. `}
          {width > MAX_COLUMNS && `The first ${MAX_COLUMNS} of ${width} columns. `}
          {more && body.length === limit && limit < 10 * INITIAL_ROWS && (
            <button type="button" class="plain" onClick={() => setLimit(10 * INITIAL_ROWS)}>
              Show more
            </button>
          )}
        </p>
      )}
    </>
  );
}
