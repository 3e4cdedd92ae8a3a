// @google/adk (TypeScript): `RemoteA2AAgent` with a server's address, of a server that was started without options.

import assert from "node:assert/strict";
import { InMemoryRunner, isFinalResponse, LogLevel, RemoteA2AAgent, setLogLevel } from "@google/adk";
import { Checks, finish, started } from "./checks.mjs";

setLogLevel(LogLevel.ERROR);

const check = new Checks("@google/adk");
const USER = { appName: "check", userId: "tester" };

/** One session of ADK, whose only agent is remote. */
class Conversation {
  constructor(agentCard) {
    const agent = new RemoteA2AAgent({ name: "remote", agentCard });
    this.runner = new InMemoryRunner({ agent, appName: USER.appName });
  }

  /** The events that follow a message. */
  async send(...parts) {
    this.session ??= await this.runner.sessionService.createSession(USER);
    const newMessage = { role: "user", parts: parts.map((part) => (typeof part === "string" ? { text: part } : part)) };
    const call = { userId: USER.userId, sessionId: this.session.id, newMessage };
    const events = [];
    for await (const event of this.runner.runAsync(call)) events.push(event);
    return events;
  }
}

const partsOf = (events) => events.flatMap((event) => event.content?.parts ?? []);
const finalTexts = (events) => partsOf(events.filter(isFinalResponse)).map((part) => part.text);
const contexts = (events) => new Set(events.map((event) => event.customMetadata["a2a:context_id"]));

check.add("it reads the card and calls the agent", ["card", "stream"], async (url) => {
  for (const address of [url, `${url}/playground/`])
    assert.deepEqual(finalTexts(await new Conversation(address).send("echo hello")), ["hello"]);
});

check.add("it sends without a stream to an agent that has none", ["send"], async (url) => {
  const card = await (await fetch(`${url}/.well-known/agent-card.json`)).json();
  card.capabilities.streaming = false;
  assert.deepEqual(finalTexts(await new Conversation(card).send("echo hello")), ["hello"]);
});

check.add("chunks come in order", ["stream"], async (url) => {
  const events = await new Conversation(url).send("stream 4 10");
  assert.deepEqual(partsOf(events).map((part) => part.text), [1, 2, 3, 4].map((number) => `chunk-${number} `));
});

check.add("files and data are parts", ["send"], async (url) => {
  const [file] = partsOf(await new Conversation(url).send("file"));
  assert.equal(Buffer.from(file.inlineData.data, "base64").toString(), "hello from the playground\n");
  const [data] = partsOf(await new Conversation(url).send("data"));
  assert.equal(JSON.parse(data.text).hello, "world");
  const sent = { inlineData: { data: "AAH/", mimeType: "application/octet-stream" } };
  const [returned] = partsOf(await new Conversation(url).send(sent));
  assert.deepEqual(returned.inlineData, sent.inlineData);
});

check.add("a session goes on in the same context", ["follow-up"], async (url) => {
  const conversation = new Conversation(url);
  const first = await conversation.send("ask");
  assert.deepEqual(finalTexts(first), ["what would you like to say?"]);
  const second = await conversation.send("echo two");
  assert.deepEqual(finalTexts(second), ["two"]);
  assert.equal(contexts([...first, ...second]).size, 1);
});

check.add("a failed task is an error", ["errors"], async (url) => {
  const [failed] = await new Conversation(url).send("fail");
  assert.equal(failed.errorMessage, "RuntimeError: failing, as asked");
});

finish(await started((url) => check.run("JSONRPC", url)));
