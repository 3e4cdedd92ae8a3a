// What checks.py is for Python: one line for each check and each operation of the table, and an exit status.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

const LIMIT = 60_000;

/** Where the server is: `http`, `grpc`, and `project`, the project's folder. */
export const { values: where } = parseArgs({
  options: { http: { type: "string" }, grpc: { type: "string" }, project: { type: "string" } },
});

/** Collects checks under their sentences. `pkg` is the client in the table; without one there are no rows. */
export class Checks {
  #client = "";
  #checks = [];

  constructor(pkg = "") {
    if (pkg) {
      const file = new URL(`./node_modules/${pkg}/package.json`, import.meta.url);
      this.#client = `${pkg} ${JSON.parse(readFileSync(file, "utf8")).version}`;
    }
  }

  /** Collects a check that shows these operations of the table to work. */
  add(sentence, operations, body) {
    this.#checks.push([sentence, operations, body]);
  }

  /** Runs every check with `given`, prints a line for each, and says whether all were well. */
  async run(title, ...given) {
    let good = true;
    for (const [sentence, operations, body] of this.#checks) {
      const failed = await failure(body, given);
      good &&= !failed;
      console.log(failed ? `FAIL  ${title}: ${sentence}: ${failed}` : `ok  ${title}: ${sentence}`);
      for (const operation of this.#client ? operations : [])
        console.log(["op", this.#client, title, operation, failed ? "failed" : "ok"].join("\t"));
    }
    return good;
  }
}

async function failure(body, given) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`it took more than ${LIMIT} ms`)), LIMIT);
  });
  try {
    await Promise.race([body(...given), late]);
    return "";
  } catch (error) {
    const at = /(check|bare|signed)\.mjs:\d+/.exec(error.stack)?.[0] ?? "";
    return `${error.name}: ${error.message} ${error.stderr ?? ""} (${at})`.replaceAll("\n", " ");
  } finally {
    clearTimeout(timer);
  }
}

/** A receiver of push notifications that takes everything: `url`, and `until`, which waits for such a body. */
export async function hook(body) {
  const deliveries = [];
  const waiting = [];
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    response.end();
    deliveries.push({ headers: request.headers, body: JSON.parse(Buffer.concat(chunks).toString("utf8")) });
    for (const check of waiting) check();
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const until = (last) =>
    new Promise((resolve) => {
      const check = () => deliveries.some(({ body }) => last(body)) && resolve(deliveries);
      waiting.push(check);
      check();
    });
  try {
    return await body({ url: `http://127.0.0.1:${server.address().port}/hook`, until });
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

/** Starts a separate server as a user does, without options for a client, and calls `body` with its URL. */
export async function started(body) {
  const folder = mkdtempSync(join(tmpdir(), "dragoman-"));
  const listening = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--log-format", "json"];
  const python = join(where.project, ".venv", "bin", "python");
  const server = spawn(python, ["-m", "dragoman", "serve", ...listening], { cwd: folder, stdio: ["ignore", "ignore", "pipe"] });
  const ended = once(server, "exit");
  try {
    const lines = createInterface({ input: server.stderr });
    const serving = new Promise((resolve, reject) => {
      const log = [];
      lines.on("line", (line) => {
        log.push(line);
        if (line.includes('"serving"')) resolve(JSON.parse(line).http);
      });
      ended.then(() => reject(new Error(`the server did not start: ${log.join(" ")}`)));
    });
    return await body(await serving);
  } finally {
    server.kill();
    await ended;
    rmSync(folder, { recursive: true });
  }
}

/** Ends the script: `end` says that nothing is missing. A connection left open does not hold it up. */
export function finish(good) {
  console.log("end");
  process.exit(good ? 0 : 1);
}
