// Builds the console into the Python package. The build is reproducible and its output is committed; `make
// console-check` compares. An argument names another output folder.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "..", "server", "dragoman", "console");

await mkdir(out, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: [
    { in: "src/app/main.tsx", out: "console" },
    { in: "src/app/console.css", out: "console" },
  ],
  outdir: out,
  bundle: true,
  minify: true,
  format: "iife",
  target: ["chrome123", "firefox120", "safari17.5"],
  // The variant for browsers parses HTML, which the content security policy of the console forbids.
  alias: { "decode-named-character-reference": "./node_modules/decode-named-character-reference/index.js" },
  jsx: "automatic",
  jsxImportSource: "preact",
  banner: {
    js: `/* With Preact, (c) 2015 Jason Miller; its signals, (c) 2022 Preact Team; packages of unified, (c) Titus Wormer
(micromark, mdast, hast, lowlight); Papa Parse, (c) 2015 Matthew Holt: all under the MIT License. With highlight.js,
(c) 2006 Ivan Sagalaev, under the BSD 3-Clause License. */`,
  },
  legalComments: "none",
  charset: "utf8",
  logLevel: "warning",
});
// The page names the hash of each file, which browsers then keep: another content has another address.
let page = await readFile(join(here, "src", "app", "index.html"), "utf8");
for (const name of ["console.css", "console.js"]) {
  const digest = createHash("sha256").update(await readFile(join(out, name))).digest("hex");
  page = page.replace(`console/${name}`, `console/${name}?v=${digest.slice(0, 16)}`);
}
await writeFile(join(out, "index.html"), page);
