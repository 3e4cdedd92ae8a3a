// Lets the checks in Python call an MCP client of Node (mcp_bridge.py): one JSON text per line, in and out.
//
// In: {id, op, ...}; out: {id, result} or {id, error: {code, message}}, and meanwhile {id, progress, message}. After
// `listen` notifications go out as {id, notice}, and null when the server has ended them in order.
// A question to the client's user goes out as {question, session, params}; its answer comes as {op: "answer", question,
// result}. The adapter of a client exports `connect(url, options)`, which returns a session with `version`, `tools`,
// `call`, `start`, `handle`, `listen` and `close`.

import { createInterface } from "node:readline";
import { connect } from "./adapter.mjs";

/** A JSON-RPC error; code 0 for a call without an answer. */
export class RpcError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

const sessions = new Map();
const tasks = new Map();
const questions = new Map();
const subscriptions = new Map();
let count = 0;

const send = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

const operations = {
  async connect({ url, answers, ...options }) {
    const name = String(++count);
    const answer = (params) =>
      new Promise((resolve) => {
        const question = String(++count);
        questions.set(question, resolve);
        send({ question, session: name, params });
      });
    const session = await connect(url, { ...options, answer: answers ? answer : undefined });
    sessions.set(name, session);
    return { session: name, version: session.version };
  },
  async close({ session }) {
    await sessions.get(session).close();
    sessions.delete(session);
  },
  async listen({ id, session, handles }) {
    const notify = (notice) => send({ id, notice });
    const subscription = await sessions.get(session).listen(handles, notify);
    subscriptions.set(id, subscription);
    subscription.closed.then((cause) => cause === "graceful" && send({ id, notice: null }));
    return id;
  },
  async unlisten({ subscription }) {
    await subscriptions.get(subscription).close();
    subscriptions.delete(subscription);
  },
  tools: ({ session }) => sessions.get(session).tools(),
  call: ({ id, session, tool, args, limit, meta, reports }) => {
    const onProgress = reports ? ({ progress, message }) => send({ id, progress, message: message ?? "" }) : undefined;
    return sessions.get(session).call(tool, args, { limit, meta, onProgress });
  },
  async start({ session, tool, args }) {
    const task = await sessions.get(session).start(tool, args);
    tasks.set(`${session} ${task.id}`, task);
    return task.id;
  },
  get: (line) => taskOf(line).get(),
  result: (line) => taskOf(line).result(),
  cancel: (line) => taskOf(line).cancel(),
};

function taskOf({ session, task }) {
  const key = `${session} ${task}`;
  if (!tasks.has(key)) tasks.set(key, sessions.get(session).handle(task));
  return tasks.get(key);
}

for await (const text of createInterface({ input: process.stdin })) {
  const line = JSON.parse(text);
  if (line.op === "answer") {
    questions.get(line.question)(line.result);
    questions.delete(line.question);
    continue;
  }
  Promise.resolve()
    .then(() => operations[line.op](line))
    .then(
      (result) => send({ id: line.id, result: result ?? null }),
      (error) => {
        const code = typeof error.code === "number" ? error.code : 0;
        send({ id: line.id, error: { code, message: `${error.name}: ${error.message}` } });
      },
    );
}
process.exit(0);
