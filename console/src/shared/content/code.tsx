// Code with its syntax highlighted.

import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import csharp from "highlight.js/lib/languages/csharp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import dockerfile from "highlight.js/lib/languages/dockerfile";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import python from "highlight.js/lib/languages/python";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import shell from "highlight.js/lib/languages/shell";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { createLowlight } from "lowlight";
import { useMemo } from "preact/hooks";
import { renderTree } from "./elements";

const languages = createLowlight({
  ...{ bash, c, cpp, csharp, css, diff, dockerfile, go, ini, java, javascript, json },
  ...{ python, ruby, rust, shell, sql, typescript, xml, yaml },
});

/** Longer code is not highlighted. */
const MAX_HIGHLIGHTED_LENGTH = 32 * 1024;

/** Whether code in this language is highlighted; by its name, an alias or a file name extension. */
export function isHighlighted(name: string): boolean {
  return languages.registered(name.toLowerCase());
}

export function Code({ text, language }: { text: string; language: string }) {
  const content = useMemo(() => {
    if (text.length > MAX_HIGHLIGHTED_LENGTH || !isHighlighted(language)) return text;
    return renderTree(languages.highlight(language.toLowerCase(), text));
  }, [text, language]);
  return (
    <pre class="data">
      <code>{content}</code>
    </pre>
  );
}
