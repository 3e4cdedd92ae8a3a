// JSON as a tree whose objects and arrays can be folded.

import { useState } from "preact/hooks";
import { plural } from "../format";
import type { Json } from "../messages";

/** Entries that are shown at first, and with every "more". */
const STEP = 100;

/** Objects and arrays above this depth are unfolded at first, if they have few entries. */
const UNFOLDED = 3;
const FEW = 30;

const LONGEST = 1_000;

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
  const [open, setOpen] = useState(depth < UNFOLDED && count <= FEW);
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
      {open && <Entries of={value} depth={depth + 1} />}
    </details>
  );
}

function Entries({ of, depth }: { of: Json[] | { [key: string]: Json }; depth: number }) {
  const [most, setMost] = useState(STEP);
  const entries = Object.entries(of);
  return (
    <div class="entries">
      {entries.slice(0, most).map(([name, value]) => (
        <Node key={name} name={name} value={value} depth={depth} />
      ))}
      {entries.length > most && (
        <button type="button" class="plain" onClick={() => setMost(most + STEP)}>
          Show {Math.min(STEP, entries.length - most)} of {entries.length - most} more
        </button>
      )}
    </div>
  );
}

function Name({ name }: { name?: string }) {
  return name === undefined ? null : <span class="name">{name}: </span>;
}

function Leaf({ value }: { value: Json }) {
  const [all, setAll] = useState(false);
  const text = JSON.stringify(value);
  const kind = value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
  return (
    <>
      <span class={`hljs-${kind === "string" ? "string" : kind === "number" ? "number" : "literal"}`}>
        {all ? text : text.slice(0, LONGEST)}
      </span>
      {!all && text.length > LONGEST && (
        <button type="button" class="plain" onClick={() => setAll(true)}>
          … show {text.length - LONGEST} more characters
        </button>
      )}
    </>
  );
}
