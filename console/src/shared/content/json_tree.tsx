// JSON as a tree whose objects and arrays can be collapsed.

import { useState } from "preact/hooks";
import { plural } from "../format";
import type { Json } from "../messages";

/** Entries that are shown at first, and with every "more". */
const PAGE_SIZE = 100;

/** Objects and arrays above this depth are expanded at first, if they have few entries. */
const EXPANDED_DEPTH = 3;
const MAX_EXPANDED_ENTRIES = 30;

const MAX_TEXT_LENGTH = 1_000;

export function JsonTree({ value }: { value: Json }) {
  return (
    <div class="data json">
      <Node value={value} depth={0} />
    </div>
  );
}

function Node({ name, value, depth }: { name?: string; value: Json; depth: number }) {
  const nested = typeof value === "object" && value !== null;
  const count = nested ? Object.keys(value).length : 0;
  const [open, setOpen] = useState(depth < EXPANDED_DEPTH && count <= MAX_EXPANDED_ENTRIES);
  if (!nested || count === 0) {
    return (
      <div class="leaf">
        <Name name={name} />
        <Leaf value={value} />
      </div>
    );
  }
  const array = Array.isArray(value);
  return (
    <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <Name name={name} />
        <span class="faint">{array ? `[${plural(count, "item")}]` : `{${plural(count, "field")}}`}</span>
      </summary>
      {open && <Entries value={value} depth={depth + 1} />}
    </details>
  );
}

function Entries({ value, depth }: { value: Json[] | { [key: string]: Json }; depth: number }) {
  const [limit, setLimit] = useState(PAGE_SIZE);
  const entries = Object.entries(value);
  return (
    <div class="entries">
      {entries.slice(0, limit).map(([name, value]) => (
        <Node key={name} name={name} value={value} depth={depth} />
      ))}
      {entries.length > limit && (
        <button type="button" class="plain" onClick={() => setLimit(limit + PAGE_SIZE)}>
          Show {Math.min(PAGE_SIZE, entries.length - limit)} of {entries.length - limit} more
        </button>
      )}
    </div>
  );
}

function Name({ name }: { name?: string }) {
  return name === undefined ? null : <span class="name">{name}: </span>;
}

function Leaf({ value }: { value: Json }) {
  const [whole, setWhole] = useState(false);
  const text = JSON.stringify(value);
  const kind = value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
  return (
    <>
      <span class={`hljs-${kind === "string" ? "string" : kind === "number" ? "number" : "literal"}`}>
        {whole ? text : text.slice(0, MAX_TEXT_LENGTH)}
      </span>
      {!whole && text.length > MAX_TEXT_LENGTH && (
        <button type="button" class="plain" onClick={() => setWhole(true)}>
          … show {text.length - MAX_TEXT_LENGTH} more characters
        </button>
      )}
    </>
  );
}
