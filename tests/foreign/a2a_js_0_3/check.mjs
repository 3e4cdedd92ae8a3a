// @a2a-js/sdk 0.3: every operation of its client over JSON-RPC, HTTP+JSON and gRPC; no extended card.

import assert from "node:assert/strict";
import * as sdk from "@a2a-js/sdk/client";
import { GrpcTransportFactory } from "@a2a-js/sdk/client/grpc";
import { Checks, finish, hook, where } from "./checks.mjs";

const check = new Checks("@a2a-js/sdk");
const older = new Checks("@a2a-js/sdk");

const chunk = (number) => `chunk-${number} `;
const until = (last) => Array.from({ length: last }, (_, index) => chunk(index + 1));

function request(parts, fields = {}, configuration = undefined) {
  const content = typeof parts === "string" ? [{ kind: "text", text: parts }] : parts;
  return { message: { kind: "message", messageId: "m-1", role: "user", parts: content, ...fields }, configuration };
}

/** The SDK's client on one transport. `lossy`: it drops file names and `append` itself. */
class Caller {
  constructor(client, transport) {
    this.client = client;
    this.transport = transport;
    this.lossy = transport !== "JSONRPC";
  }

  send(parts, fields) {
    return this.client.sendMessage(request(parts, fields));
  }

  start(content) {
    return this.client.sendMessage(request(content, {}, { blocking: false }));
  }

  stream(content, fields) {
    return collect(this.client.sendMessageStream(request(content, fields)));
  }

  get(id, fields) {
    return this.client.getTask({ id, ...fields });
  }

  cancel(id) {
    return this.client.cancelTask({ id });
  }

  follow(id, begun) {
    return collect(this.client.resubscribeTask({ id }), begun);
  }
}

/** All events; `begun` is called with each. */
async function collect(stream, begun = () => {}) {
  const events = [];
  for await (const event of stream) {
    events.push(event);
    begun();
  }
  return events;
}

const texts = (task) => (task.artifacts ?? []).flatMap((artifact) => artifact.parts.map((part) => part.text)).join("");
const updates = (events) => events.filter(({ kind }) => kind === "artifact-update");
const chunks = (events) => updates(events).map(({ artifact }) => artifact.parts[0].text);

/** `call` has to fail with `kind`. The SDK puts the error of an SSE event below a plain one. */
async function refused(kind, call) {
  await assert.rejects(call, (error) => {
    const found = error instanceof kind ? error : error.cause;
    assert.ok(found instanceof kind, `${error.name}: ${error.message}`);
    return true;
  });
}

check.add("a blocking send gives the finished task", ["send"], async (caller) => {
  const task = await caller.send("echo hello");
  assert.deepEqual([task.kind, task.status.state, texts(task)], ["task", "completed", "hello"]);
  assert.equal(task.history[0].parts[0].text, "echo hello");
});

check.add("a send that does not wait gives a task to poll", ["non-blocking send", "get"], async (caller) => {
  const task = await caller.start("sleep 0.5");
  assert.ok(["submitted", "working"].includes(task.status.state));
  while ((await caller.get(task.id)).status.state !== "completed");
});

check.add("a stream is the task and then its chunks in order", ["stream"], async (caller) => {
  const events = await caller.stream("stream 5 5");
  assert.equal(events[0].kind, "task");
  assert.deepEqual(chunks(events), until(5));
  const appended = updates(events).map(({ append }) => append ?? false);
  assert.deepEqual(appended, [false, ...Array(4).fill(!caller.lossy)]);
  assert.deepEqual([events.at(-1).status.state, events.at(-1).final], ["completed", true]);
  assert.equal(texts(await caller.get(events[0].id)), until(5).join(""));
});

check.add("a streamed question is the final event", ["stream"], async (caller) => {
  const last = (await caller.stream("ask")).at(-1);
  assert.deepEqual([last.status.state, last.final], ["input-required", true]);
});

check.add("a follow-up needs only the task every time", ["follow-up"], async (caller) => {
  for (const [question, state] of [["ask", "input-required"], ["auth", "auth-required"]]) {
    const task = await caller.send(question);
    assert.equal(task.status.state, state);
    assert.ok(task.status.message.parts[0].text);
    const answered = await caller.send("blue", { taskId: task.id });
    assert.deepEqual([answered.id, answered.contextId], [task.id, task.contextId]);
    assert.equal(texts(answered), "you said: blue");
  }
});

check.add("failing and rejecting are states, not errors", ["send"], async (caller) => {
  assert.equal((await caller.send("fail")).status.state, "failed");
  assert.equal((await caller.send("reject")).status.state, "rejected");
});

check.add("a direct reply is a message", ["send", "stream"], async (caller) => {
  const reply = await caller.send("reply hi");
  assert.deepEqual([reply.kind, reply.parts[0].text], ["message", "hi"]);
  assert.deepEqual((await caller.stream("reply hi")).map(({ kind }) => kind), ["message"]);
});

check.add("files and data go there and back", ["send", "get"], async (caller) => {
  const bytes = Buffer.from([0, 1, 255]).toString("base64");
  // Over gRPC it cannot write a null.
  const data = { numbers: [1, 2.5], nested: { yes: true, ...(caller.transport !== "GRPC" && { empty: null }) } };
  const parts = [
    { kind: "file", file: { bytes, name: "x.bin", mimeType: "application/octet-stream" } },
    { kind: "file", file: { uri: "http://127.0.0.1:1/x.csv", mimeType: "text/csv" } },
    { kind: "data", data },
  ];
  const task = await caller.send(parts);
  const [file, link, object] = task.artifacts[0].parts;
  assert.equal((await caller.get(task.id)).artifacts[0].parts[0].file.bytes, bytes);
  assert.deepEqual([file.file.bytes, file.file.name], [bytes, caller.lossy ? undefined : "x.bin"]);
  assert.deepEqual(link.file, parts[1].file);
  assert.deepEqual(object.data, data);
});

check.add("history is cut to what was asked for", ["get"], async (caller) => {
  const task = await caller.send("ask");
  await caller.send("blue", { taskId: task.id });
  assert.equal((await caller.get(task.id, { historyLength: 1 })).history.length, 1);
  assert.equal((await caller.get(task.id)).history.length, 3);
});

check.add("a task is canceled and its followers hear of it", ["cancel", "subscribe"], async (caller) => {
  const task = await caller.start("sleep 30");
  let following;
  await new Promise((begun) => {
    following = caller.follow(task.id, begun);
    following.catch(begun);
  });
  assert.equal((await caller.cancel(task.id)).status.state, "canceled");
  const events = await following;
  assert.equal(events[0].kind, "task");
  assert.deepEqual([events.at(-1).status.state, events.at(-1).final], ["canceled", true]);
});

check.add("a subscription shows everything once", ["subscribe"], async (caller) => {
  const task = await caller.start("stream 20 40");
  const events = await caller.follow(task.id);
  assert.equal(events[0].id, task.id);
  assert.equal(texts(events[0]) + chunks(events).join(""), until(20).join(""));
});

check.add("a finished task is shown once to a subscriber, or refused", ["subscribe"], async (caller) => {
  const task = await caller.send("hello");
  // 0.3 in JSON has no stream for a task that has ended; its proto form shows the task.
  if (caller.transport === "JSONRPC") return refused(sdk.UnsupportedOperationError, caller.follow(task.id));
  const events = await caller.follow(task.id);
  assert.deepEqual(events.map(({ id, status }) => [id, status.state]), [[task.id, "completed"]]);
});

check.add("the card is found and read", ["card"], async (caller) => {
  const card = await caller.client.getAgentCard();
  assert.deepEqual([card.name, card.protocolVersion.slice(0, 3)], ["Playground", "0.3"]);
});

check.add("an unknown task is not found", ["errors"], async (caller) => {
  await refused(sdk.TaskNotFoundError, caller.get("no-such-task"));
  await refused(sdk.TaskNotFoundError, caller.cancel("no-such-task"));
  await refused(sdk.TaskNotFoundError, caller.send("hello", { taskId: "no-such-task" }));
});

check.add("a stream that cannot begin says why", ["errors"], async (caller) => {
  await refused(sdk.TaskNotFoundError, caller.stream("hello", { taskId: "no-such-task" }));
  await refused(sdk.TaskNotFoundError, caller.follow("no-such-task"));
});

check.add("a task that has ended is not canceled", ["errors"], async (caller) => {
  const task = await caller.send("hello");
  await refused(sdk.TaskNotCancelableError, caller.cancel(task.id));
});

check.add("bad messages are told apart", ["errors"], async (caller) => {
  const done = await caller.send("hello");
  await assert.rejects(caller.send("more", { taskId: done.id }));
  await assert.rejects(caller.send([]));
  const file = { bytes: "AAAA", mimeType: "application/x-unsupported" };
  const odd = caller.send([{ kind: "file", file }]);
  // Over gRPC it has no exception for this one.
  await (caller.transport === "GRPC" ? assert.rejects(odd) : refused(sdk.ContentTypeNotSupportedError, odd));
});

const webhook = (taskId, url) => ({
  taskId,
  pushNotificationConfig: { id: "c", url, token: "t0ken", authentication: { schemes: ["Bearer"], credentials: "s3cret" } },
});

check.add("a webhook is kept, replaced, listed and deleted", ["push configs"], async ({ client }) => {
  const { id } = await client.sendMessage(request("ask"));
  const one = { id, pushNotificationConfigId: "c" };
  for (const url of ["https://one.example/hook", "https://two.example/hook"])
    for (const { taskId, pushNotificationConfig: config } of [
      await client.setTaskPushNotificationConfig(webhook(id, url)),
      await client.getTaskPushNotificationConfig(one),
    ]) {
      assert.deepEqual([taskId, config.id, config.url], [id, "c", url]);
      assert.deepEqual(config.authentication.schemes, ["Bearer"]);
      // Nobody gets secrets back.
      assert.ok(!config.token && !config.authentication.credentials);
    }
  const listed = async () => (await client.listTaskPushNotificationConfig({ id })).length;
  assert.equal(await listed(), 1);
  for (let times = 0; times < 2; times++) await client.deleteTaskPushNotificationConfig(one);
  assert.equal(await listed(), 0);
});

check.add("a webhook that cannot be is refused", ["push configs", "errors"], async ({ client }) => {
  const { id } = await client.sendMessage(request("ask"));
  const unknown = webhook("no-such-task", "https://one.example/hook");
  await refused(sdk.TaskNotFoundError, client.setTaskPushNotificationConfig(unknown));
  const none = { id, pushNotificationConfigId: "none" };
  await refused(sdk.TaskNotFoundError, client.getTaskPushNotificationConfig(none));
  await assert.rejects(client.setTaskPushNotificationConfig(webhook(id, "http://169.254.169.254/latest")));
});

check.add("a receiver is told the task as its state changes", ["push"], ({ client }) =>
  hook(async ({ url, until: received }) => {
    const { pushNotificationConfig } = webhook("", url);
    const task = await client.sendMessage(request("echo hello", {}, { pushNotificationConfig, blocking: true }));
    const deliveries = await received((body) => body.status.state === "completed");
    for (const { headers, body } of deliveries) {
      assert.deepEqual([body.kind, body.id], ["task", task.id]);
      assert.equal(headers["x-a2a-notification-token"], "t0ken");
      assert.equal(headers.authorization, "Bearer s3cret");
    }
    assert.equal(texts(deliveries.at(-1).body), "hello");
  }),
);

check.add("a receiver is told what comes after it was registered", ["push"], ({ client }) =>
  hook(async ({ url, until: received }) => {
    const { id } = await client.sendMessage(request("ask"));
    await client.setTaskPushNotificationConfig(webhook(id, url));
    await client.sendMessage(request("blue", { taskId: id }));
    const deliveries = await received((body) => body.status.state === "completed");
    assert.deepEqual(deliveries.map(({ body }) => body.status.state), ["working", "completed"]);
  }),
);

older.add("it registers a webhook", ["push configs"], async (client) => {
  const { result } = await client.sendMessage(request("ask"));
  const set = await client.setTaskPushNotificationConfig(webhook(result.id, "https://one.example/hook"));
  assert.equal(set.result.pushNotificationConfig.url, "https://one.example/hook");
  const got = await client.getTaskPushNotificationConfig({ id: result.id });
  assert.deepEqual(got.result, set.result);
});

// The class before transports could be chosen: JSON-RPC to the card's `url`, and answers as they came.

older.add("it sends, and gets what it sent", ["send", "get"], async (client) => {
  const { result } = await client.sendMessage(request("echo hello"));
  assert.deepEqual([result.status.state, texts(result)], ["completed", "hello"]);
  assert.deepEqual((await client.getTask({ id: result.id })).result, result);
});

older.add("it does not wait when told not to, and cancels", ["non-blocking send", "cancel"], async (client) => {
  const { result } = await client.sendMessage(request("sleep 30", {}, { blocking: false }));
  assert.ok(["submitted", "working"].includes(result.status.state));
  assert.equal((await client.cancelTask({ id: result.id })).result.status.state, "canceled");
});

older.add("it streams and resubscribes", ["stream", "subscribe"], async (client) => {
  const events = await collect(client.sendMessageStream(request("stream 3")));
  assert.deepEqual(chunks(events), until(3));
  const { result } = await client.sendMessage(request("stream 20 40", {}, { blocking: false }));
  const [task, ...rest] = await collect(client.resubscribeTask({ id: result.id }));
  assert.equal(texts(task) + chunks(rest).join(""), until(20).join(""));
});

older.add("it answers a question", ["follow-up"], async (client) => {
  const { result } = await client.sendMessage(request("ask"));
  const answered = await client.sendMessage(request("blue", { taskId: result.id }));
  assert.equal(texts(answered.result), "you said: blue");
});

older.add("it reads the card", ["card"], async (client) => {
  assert.equal((await client.getAgentCard()).name, "Playground");
});

older.add("it is given the codes of errors", ["errors"], async (client) => {
  const done = (await client.sendMessage(request("hello"))).result.id;
  for (const [code, call] of [
    [-32001, client.getTask({ id: "no-such-task" })],
    [-32001, client.sendMessage(request("hello", { taskId: "no-such-task" }))],
    [-32002, client.cancelTask({ id: done })],
    [-32602, client.sendMessage(request([]))],
  ])
    assert.equal((await call).error?.code, code);
});

let good = true;
const transports = [new sdk.JsonRpcTransportFactory(), new sdk.RestTransportFactory(), new GrpcTransportFactory()];
for (const transport of transports) {
  const factory = new sdk.ClientFactory({ transports: [transport] });
  const caller = new Caller(await factory.createFromUrl(where.http), transport.protocolName);
  good = (await check.run(transport.protocolName, caller)) && good;
}
const client = await sdk.A2AClient.fromCardUrl(`${where.http}/.well-known/agent-card.json`);
good = (await older.run("JSONRPC (A2AClient)", client)) && good;
finish(good);
