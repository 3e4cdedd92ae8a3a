// Turns a sanitized tree of Markdown or of highlighted code into elements. No HTML is parsed on the way: the content
// security policy forbids it (`trusted-types 'none'`).

import type { Element, ElementContent, Root, RootContent } from "hast";
import { h, type ComponentChildren } from "preact";

/** Deeper elements become text, because browsers and Preact handle nested elements recursively. */
const MAX_DEPTH = 32;

/** Only these are links; `javascript:`, `data:` and addresses relative to the console are text. */
export const SAFE_URL = /^(https?:\/\/|mailto:)/i;

export function Link({ href, title, children }: { href: string; title?: string; children: ComponentChildren }) {
  if (!SAFE_URL.test(href)) return <span title={href || undefined}>{children}</span>;
  return (
    <a href={href} title={title} target="_blank" rel="noopener noreferrer">
      {children}
    </a>
  );
}

/** The tree's elements. `code` renders blocks of code; without it they are only text. */
export function renderTree(tree: Root, code?: (text: string, language: string) => ComponentChildren): ComponentChildren {
  let heading = 2; // the level of the page's last heading, so that no level is skipped

  const renderNodes = (nodes: readonly (RootContent | ElementContent)[], depth: number): ComponentChildren =>
    nodes.map((node) => {
      if (node.type === "text") return node.value;
      if (node.type !== "element") return null;
      return depth > MAX_DEPTH ? textOf(node) : renderNode(node, depth);
    });

  const renderNode = (node: Element, depth: number): ComponentChildren => {
    const { tagName, properties } = node;
    const renderChildren = () => renderNodes(node.children, depth + 1);
    const text = (name: string) => (typeof properties[name] === "string" ? properties[name] : undefined);
    const names = properties["className"];
    const classes = Array.isArray(names) ? names.join(" ") : undefined;
    if (/^h[1-6]$/.test(tagName)) {
      const level = Number(tagName[1]);
      heading = Math.min(level + 2, heading + 1, 6);
      return h(`h${heading}`, { class: `h${level}` }, renderChildren());
    }
    switch (tagName) {
      case "a":
        return (
          <Link href={text("href") ?? ""} title={text("title")}>
            {renderChildren()}
          </Link>
        );
      case "pre": {
        const [first] = node.children;
        const codeClasses = first?.type === "element" ? first.properties["className"] : undefined;
        const language = Array.isArray(codeClasses) ? String(codeClasses[0] ?? "").replace(/^language-/, "") : "";
        return code ? code(textOf(node).replace(/\n$/, ""), language) : <pre>{textOf(node)}</pre>;
      }
      case "table":
        return (
          <div class="wide" tabIndex={0} role="group" aria-label="Table">
            <table>{renderChildren()}</table>
          </div>
        );
      case "input":
        return <input type="checkbox" checked={properties["checked"] === true} disabled aria-label="Done" />;
      case "ol":
        return <ol start={typeof properties["start"] === "number" ? properties["start"] : undefined}>{renderChildren()}</ol>;
      case "br":
      case "hr":
        return h(tagName, null);
      default:
        return h(tagName, { class: classes ?? (text("align") ? `align-${text("align")}` : undefined) }, renderChildren());
    }
  };

  return renderNodes(tree.children, 0);
}

function textOf(node: Element): string {
  let text = "";
  const rest: ElementContent[] = [...node.children].reverse();
  for (let next = rest.pop(); next; next = rest.pop()) {
    if (next.type === "text") text += next.value;
    else if (next.type === "element") rest.push(...[...next.children].reverse());
  }
  return text;
}
