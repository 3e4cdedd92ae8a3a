// node dist/main.js --server HOST:PORT [--key-file FILE] [--tls-ca FILE] [--id ID] [--turns N]

import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { playground } from "./playground.js";
import { Worker } from "./worker.js";

const { values } = parseArgs({
  options: {
    server: { type: "string", default: "127.0.0.1:50051" },
    "key-file": { type: "string" },
    "tls-ca": { type: "string" },
    id: { type: "string", default: "playground-node" },
    turns: { type: "string", default: "100" },
  },
});

const key = values["key-file"] ? readFileSync(values["key-file"], "utf8").trim() : "";
const server = { address: values.server, key, ca: values["tls-ca"] };
const worker = new Worker(server, [playground(values.id)], Number(values.turns));
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => void worker.drain());
worker.run().catch((error: Error) => {
  console.error(`error: ${error.message}`);
  process.exitCode = 3;
});
