// Renders Markdown of agents (CommonMark and GitHub's tables, lists of tasks, links). HTML in it is shown as text, and
// images are links, because no request leaves the server.

import type { Element, Root } from "hast";
import { sanitize, type Schema } from "hast-util-sanitize";
import { fromMarkdown } from "mdast-util-from-markdown";
import { gfmFromMarkdown } from "mdast-util-gfm";
import { toHast, type Handlers } from "mdast-util-to-hast";
import { gfm } from "micromark-extension-gfm";
import { useEffect, useRef, useState } from "preact/hooks";
import { Code } from "./code";
import { renderTree, SAFE_URL } from "./elements";

const SCHEMA: Schema = {
  tagNames: [
    ..."a blockquote br code del em h1 h2 h3 h4 h5 h6 hr input li ol p pre strong".split(" "),
    ..."sup table tbody td th thead tr ul".split(" "),
  ],
  attributes: {
    a: ["href", "title"],
    code: [["className", /^language-./]],
    input: ["checked", ["disabled", true], ["type", "checkbox"]],
    ol: ["start"],
    td: ["align"],
    th: ["align"],
  },
  protocols: { href: ["http", "https", "mailto"] },
  required: { input: { disabled: true, type: "checkbox" } },
};

const HANDLERS: Handlers = {
  html: (_, node: { value: string }) => ({ type: "text", value: node.value }),
  image: (_, node: { url: string; alt?: string | null }) => imageLink(node.url, node.alt),
  imageReference: (state, node: { identifier: string; alt?: string | null }) =>
    imageLink(state.definitionById.get(node.identifier.toUpperCase())?.url ?? "", node.alt),
};

function imageLink(url: string, alt?: string | null): Element {
  const text = `Image: ${alt || url}`;
  return { type: "element", tagName: "a", properties: SAFE_URL.test(url) ? { href: url } : {}, children: [{ type: "text", value: text }] };
}

const MARKDOWN_SYNTAX = /(^|\n) {0,3}(#{1,6} |>|[-*+] |\d{1,9}[.)] |```|~~~|\||---)|[*_~`]\S|\]\(|\]\[|&\w+;|\\\W/;

/** Whether a text has anything that Markdown would show in another way; links are found in every text. */
export function hasMarkdown(text: string): boolean {
  return MARKDOWN_SYNTAX.test(text);
}

/** More nesting than people write: each level costs time for every line below it. */
const DEEP_NESTING = /^(?: {0,3}(?:>|[-*+](?= )|\d+[.)](?= )) ?){9}/m;

/** More brackets or emphasis signs than people write, for which parsing takes the square of their number. */
const MAX_SYNTAX_CHARACTERS = 4_000;

/** The tree of a Markdown text; undefined if it would take long to parse. */
export function parseMarkdown(text: string): Root | undefined {
  if (DEEP_NESTING.test(text) || (text.match(/[[\]*_~`<]/g)?.length ?? 0) > MAX_SYNTAX_CHARACTERS) return undefined;
  try {
    const tree = fromMarkdown(text, { extensions: [gfm()], mdastExtensions: [gfmFromMarkdown()] });
    return sanitize(toHast(tree, { handlers: HANDLERS }), SCHEMA) as Root;
  } catch (error) {
    if (error instanceof RangeError) return undefined; // nested too deeply for recursion
    throw error;
  }
}

export function Markdown({ text }: { text: string }) {
  const tree = useParsed(text);
  if (!tree) return <pre class="text">{text}</pre>;
  return (
    <div class="markdown">
      {renderTree(tree, (code, language) => (
        <Code text={code} language={language} />
      ))}
    </div>
  );
}

/** The tree of a text that may grow with every frame: parsing takes at most a tenth of the time. */
function useParsed(text: string): Root | undefined {
  const [, setRound] = useState(0);
  const parsed = useRef<{ text: string; tree: Root | undefined; due: number } | undefined>(undefined);
  const last = parsed.current;
  if (!last || (last.text !== text && performance.now() >= last.due)) {
    const start = performance.now();
    const tree = parseMarkdown(text);
    const end = performance.now();
    parsed.current = { text, tree, due: end + 10 * (end - start) };
  }
  useEffect(() => {
    if (!parsed.current || parsed.current.text === text) return;
    const timer = setTimeout(() => setRound((round) => round + 1), Math.max(0, parsed.current.due - performance.now()));
    return () => clearTimeout(timer);
  });
  return parsed.current?.tree;
}
