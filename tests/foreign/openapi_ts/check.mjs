// Typed clients of the server's own /openapi.json: generated, compiled with `strict`, and called.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Checks, finish, where } from "./checks.mjs";

const SOURCES = ["calls.ts", "openapi_fetch.ts", "hey_api.ts"];
const PLUGINS = ["@hey-api/client-fetch", "@hey-api/sdk", "@hey-api/typescript"];
const OPTIONS = ["--strict", "--skipLibCheck", "--target", "es2023", "--module", "commonjs", "--outDir", "built"];

/** Generates both clients into a folder, and compiles them with the programs that call them. */
async function build(folder) {
  const run = (name, ...words) =>
    execFileSync(join(folder, "node_modules", ".bin", name), words, { cwd: folder, stdio: "pipe" });
  symlinkSync(join(dirname(fileURLToPath(import.meta.url)), "node_modules"), join(folder, "node_modules"));
  writeFileSync(join(folder, "openapi.json"), await (await fetch(`${where.http}/openapi.json`)).text());
  run("openapi-typescript", "openapi.json", "-o", "schema.d.ts");
  run("openapi-ts", "-i", "openapi.json", "-o", "client", "-p", ...PLUGINS);
  for (const name of SOURCES) copyFileSync(join(where.project, "tests/foreign/openapi_ts", name), join(folder, name));
  run("tsc", ...OPTIONS, ...SOURCES);
}

function checksOf(pkg) {
  const checks = new Checks(pkg);
  checks.add("it sends, gets and lists", ["send", "get", "list"], async (calls) => {
    const task = await calls.send("echo hello");
    assert.equal(task.status.state, "TASK_STATE_COMPLETED");
    assert.equal(task.artifacts[0].parts[0].text, "hello");
    assert.deepEqual(await calls.get(task.id), task);
    assert.deepEqual(
      (await calls.list(task.contextId)).map(({ id }) => id),
      [task.id],
    );
  });
  checks.add("it reads errors", ["errors"], async (calls) => {
    assert.deepEqual(await calls.refusal("no-such-task"), [404, "TASK_NOT_FOUND"]);
  });
  return checks;
}

const folder = mkdtempSync(join(tmpdir(), "openapi-"));
let good = true;
try {
  await build(folder);
  const load = createRequire(join(folder, "built", "main.js"));
  for (const [pkg, file] of [
    ["openapi-fetch", "openapi_fetch"],
    ["@hey-api/openapi-ts", "hey_api"],
  ])
    good = (await checksOf(pkg).run("generated from OpenAPI", load(`./${file}.js`).connect(where.http))) && good;
} catch (error) {
  good = false;
  console.log(`FAIL  clients are generated: ${error.message} ${error.stdout ?? ""}`.replaceAll("\n", " "));
} finally {
  rmSync(folder, { recursive: true });
}
finish(good);
