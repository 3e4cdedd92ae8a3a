// a2a-ai-provider: the AI SDK of Vercel with the URL of a card, of a server that was started without options.

import assert from "node:assert/strict";
import { a2a } from "a2a-ai-provider";
import { generateText, streamText } from "ai";
import { Checks, finish, started } from "./checks.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const check = new Checks("a2a-ai-provider");
const written = console.log;

/** What `call` gives. The provider writes each event to the console, which is silent meanwhile. */
async function quietly(call) {
  console.log = () => {};
  try {
    return await call();
  } finally {
    console.log = written;
  }
}

const options = (url, prompt, contextId) => ({
  model: a2a(`${url}/.well-known/agent-card.json`),
  maxRetries: 0,
  ...(typeof prompt === "string" ? { prompt } : { messages: [{ role: "user", content: prompt }] }),
  ...(contextId ? { providerOptions: { a2a: { contextId } } } : {}),
});

const generate = (...call) => quietly(() => generateText(options(...call)));

/** The texts of a stream, and why it ended. */
const stream = (...call) =>
  quietly(async () => {
    const failures = [];
    const result = streamText({ ...options(...call), onError: ({ error }) => failures.push(error) });
    const texts = [];
    for await (const text of result.textStream) texts.push(text);
    if (failures.length) throw failures[0];
    return { texts, reason: await result.finishReason, files: await result.files };
  });

check.add("it reads the card and calls the agent", ["card", "send"], async (url) => {
  assert.equal((await generate(url, "echo hello")).text, "hello");
  assert.equal((await generate(url, "reply hi")).text, "hi");
});

check.add("a stream brings each chunk", ["stream"], async (url) => {
  const chunks = [1, 2, 3, 4].map((number) => `chunk-${number} `);
  assert.deepEqual(await stream(url, "stream 4 10"), { texts: chunks, reason: "stop", files: [] });
  assert.deepEqual((await stream(url, "reply hi")).texts, ["hi"]);
});

check.add("files go there and back", ["send", "stream"], async (url) => {
  const data = new Uint8Array([0, 1, 255]);
  const { files } = await generate(url, [{ type: "file", data, mediaType: "application/octet-stream" }]);
  assert.deepEqual(files.map((file) => [file.uint8Array, file.mediaType]), [[data, "application/octet-stream"]]);
  const streamed = await stream(url, "file");
  assert.equal(Buffer.from(streamed.files[0].uint8Array).toString(), "hello from the playground\n");
});

check.add("a context goes on", ["follow-up"], async (url) => {
  const context = crypto.randomUUID();
  for (const number of ["one", "two"]) {
    const { text, response } = await generate(url, `echo ${number}`, context);
    assert.deepEqual([text, response.body.contextId], [number, context]);
  }
});

check.add("a question and a failure are texts, and streams end with their reason", ["send", "errors"], async (url) => {
  assert.equal((await generate(url, "ask")).text, "what would you like to say?");
  assert.equal((await generate(url, "fail")).text, "RuntimeError: failing, as asked");
  assert.equal((await stream(url, "ask")).reason, "stop");
  assert.equal((await stream(url, "fail")).reason, "error");
});

check.add("an invalid context is refused", ["errors"], async (url) => {
  await assert.rejects(() => generate(url, "echo hello", "x".repeat(5000)), /Invalid parameters/);
});

finish(await started((url) => check.run("JSONRPC", url)));
