// @a2a-js/sdk 1.x: every operation of its client over JSON-RPC, HTTP+JSON and gRPC, in 1.0 and its 0.3 compat layer.

import assert from "node:assert/strict";
import {
  CancelTaskRequest,
  GetTaskRequest,
  ListTasksRequest,
  SendMessageRequest,
  StreamResponse,
  TaskPushNotificationConfig,
  TaskState,
} from "@a2a-js/sdk";
import * as sdk from "@a2a-js/sdk/client";
import { GrpcTransportFactory } from "@a2a-js/sdk/client/grpc";
import * as errors from "@a2a-js/sdk/errors";
import { Checks, finish, hook, where } from "./checks.mjs";

const check = new Checks("@a2a-js/sdk");
const v1Only = new Checks("@a2a-js/sdk");
const compatOnly = new Checks("@a2a-js/sdk");

const text = (content) => ({ text: content });
const chunk = (number) => `chunk-${number} `;
const until = (last) => Array.from({ length: last }, (_, index) => chunk(index + 1));

/** The SDK's client on one transport, asked in JSON. `lossy`: it drops file names and `append` itself. */
class Caller {
  constructor(client, resolver) {
    this.client = client;
    this.resolver = resolver;
    this.lossy = client.protocolVersion === "0.3" && client.transport.protocolName !== "JSONRPC";
  }

  request(parts, fields = {}, configuration = undefined) {
    const content = typeof parts === "string" ? [text(parts)] : parts;
    const message = { messageId: "m-1", role: "ROLE_USER", parts: content, ...fields };
    return SendMessageRequest.fromJSON({ message, configuration });
  }

  send(parts, fields) {
    return this.client.sendMessage(this.request(parts, fields));
  }

  start(content) {
    return this.client.sendMessage(this.request(content, {}, { returnImmediately: true }));
  }

  stream(content, fields) {
    return collect(this.client.sendMessageStream(this.request(content, fields)));
  }

  get(id, fields) {
    return this.client.getTask(GetTaskRequest.fromJSON({ id, ...fields }));
  }

  list(fields) {
    return this.client.listTasks(ListTasksRequest.fromJSON(fields));
  }

  cancel(id) {
    return this.client.cancelTask(CancelTaskRequest.fromJSON({ id }));
  }

  follow(id, begun) {
    return collect(this.client.resubscribeTask({ tenant: "", id }), begun);
  }
}

/** All events; `begun` is called with each. */
async function collect(stream, begun = () => {}) {
  const events = [];
  for await (const event of stream) {
    events.push(event.payload);
    begun();
  }
  return events;
}

const contents = (task) => task.artifacts.flatMap((artifact) => artifact.parts.map((part) => part.content.value));
const chunks = (events) =>
  events.filter(({ $case }) => $case === "artifactUpdate").map(({ value }) => value.artifact.parts[0].content.value);

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
  assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
  assert.deepEqual(contents(task), ["hello"]);
  assert.equal(task.history[0].parts[0].content.value, "echo hello");
});

check.add("a send that does not wait gives a task to poll", ["non-blocking send", "get"], async (caller) => {
  const task = await caller.start("sleep 0.5");
  assert.ok([TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING].includes(task.status.state));
  while ((await caller.get(task.id)).status.state !== TaskState.TASK_STATE_COMPLETED);
});

check.add("a stream is the task and then its chunks in order", ["stream"], async (caller) => {
  const events = await caller.stream("stream 5 5");
  assert.equal(events[0].$case, "task");
  assert.deepEqual(chunks(events), until(5));
  const appended = events.filter(({ $case }) => $case === "artifactUpdate").map(({ value }) => value.append);
  assert.deepEqual(appended, [false, ...Array(4).fill(!caller.lossy)]);
  assert.equal(events.at(-1).value.status.state, TaskState.TASK_STATE_COMPLETED);
  assert.equal(contents(await caller.get(events[0].value.id)).join(""), until(5).join(""));
});

check.add("a follow-up needs only the task every time", ["follow-up"], async (caller) => {
  for (const [question, state] of [["ask", "TASK_STATE_INPUT_REQUIRED"], ["auth", "TASK_STATE_AUTH_REQUIRED"]]) {
    const task = await caller.send(question);
    assert.equal(task.status.state, TaskState[state]);
    assert.ok(task.status.message.parts[0].content.value);
    const answered = await caller.send("blue", { taskId: task.id });
    assert.deepEqual([answered.id, answered.contextId], [task.id, task.contextId]);
    assert.deepEqual(contents(answered), ["you said: blue"]);
  }
});

check.add("failing and rejecting are states, not errors", ["send"], async (caller) => {
  assert.equal((await caller.send("fail")).status.state, TaskState.TASK_STATE_FAILED);
  assert.equal((await caller.send("reject")).status.state, TaskState.TASK_STATE_REJECTED);
});

check.add("a direct reply is a message", ["send", "stream"], async (caller) => {
  const reply = await caller.send("reply hi");
  assert.ok("messageId" in reply);
  assert.equal(reply.parts[0].content.value, "hi");
  const events = await caller.stream("reply hi");
  assert.deepEqual(events.map(({ $case }) => $case), ["message"]);
});

check.add("files and data go there and back", ["send"], async (caller) => {
  const raw = Buffer.from([0, 1, 255]);
  const data = { numbers: [1, 2.5], nested: { yes: true, empty: null } };
  const parts = [
    { raw: raw.toString("base64"), filename: "x.bin", mediaType: "application/octet-stream" },
    { url: "http://127.0.0.1:1/x.csv", mediaType: "text/csv" },
    { data },
  ];
  const [file, link, object] = (await caller.send(parts)).artifacts[0].parts;
  assert.deepEqual([Buffer.from(file.content.value), file.filename], [raw, caller.lossy ? "" : "x.bin"]);
  assert.deepEqual([link.content.$case, link.content.value, link.mediaType], ["url", parts[1].url, "text/csv"]);
  assert.deepEqual(object.content.value, data);
});

check.add("a task is canceled and its followers hear of it", ["cancel", "subscribe"], async (caller) => {
  const task = await caller.start("sleep 30");
  let following;
  await new Promise((begun) => {
    following = caller.follow(task.id, begun);
    following.catch(begun);
  });
  assert.equal((await caller.cancel(task.id)).status.state, TaskState.TASK_STATE_CANCELED);
  const events = await following;
  assert.equal(events[0].$case, "task");
  assert.equal(events.at(-1).value.status.state, TaskState.TASK_STATE_CANCELED);
  await refused(errors.TaskNotCancelableError, caller.cancel(task.id));
});

check.add("the card declares what the agent can", ["card"], async (caller) => {
  const card = await caller.resolver.resolve(where.http);
  assert.deepEqual([card.name, card.capabilities.streaming], ["Playground", true]);
  assert.equal((await caller.client.getAgentCard()).name, "Playground");
});

check.add("an unknown task is not found", ["errors"], async (caller) => {
  await refused(errors.TaskNotFoundError, caller.get("no-such-task"));
  await refused(errors.TaskNotFoundError, caller.cancel("no-such-task"));
  await refused(errors.TaskNotFoundError, caller.send("hello", { taskId: "no-such-task" }));
});

check.add("a stream that cannot begin says why", ["errors"], async (caller) => {
  await refused(errors.TaskNotFoundError, caller.stream("hello", { taskId: "no-such-task" }));
  await refused(errors.TaskNotFoundError, caller.follow("no-such-task"));
});

check.add("bad messages are told apart", ["errors"], async (caller) => {
  await refused(errors.RequestMalformedError, caller.send([]));
  const odd = { raw: "AAAA", mediaType: "application/x-unsupported" };
  await refused(errors.ContentTypeNotSupportedError, caller.send([odd]));
});

check.add("history is cut to what was asked for", ["get"], async (caller) => {
  const task = await caller.send("ask");
  await caller.send("blue", { taskId: task.id });
  assert.equal((await caller.get(task.id, { historyLength: 1 })).history.length, 1);
  assert.equal((await caller.get(task.id)).history.length, 3);
});

check.add("a subscription shows everything once", ["subscribe"], async (caller) => {
  const task = await caller.start("stream 20 40");
  const events = await caller.follow(task.id);
  assert.equal(events[0].value.id, task.id);
  assert.equal([...contents(events[0].value), ...chunks(events)].join(""), until(20).join(""));
});

v1Only.add("pages of tasks follow their tokens", ["list"], async (caller) => {
  const contextId = `paged by js over ${caller.client.transport.protocolName}`;
  const sent = [];
  for (let count = 0; count < 5; count++) sent.push((await caller.send("hello", { contextId })).id);
  const seen = [];
  let pageToken = "";
  do {
    const page = await caller.list({ contextId, pageSize: 2, pageToken });
    assert.equal(page.totalSize, 5);
    seen.push(...page.tasks.map((task) => task.id));
    pageToken = page.nextPageToken;
  } while (pageToken);
  assert.deepEqual(seen.toSorted(), sent.toSorted());
  assert.equal((await caller.list({ contextId, status: "TASK_STATE_FAILED" })).totalSize, 0);
});

v1Only.add("a finished task takes nothing more", ["errors"], async (caller) => {
  const task = await caller.send("hello");
  await refused(errors.UnsupportedOperationError, caller.send("more", { taskId: task.id }));
  await refused(errors.UnsupportedOperationError, caller.follow(task.id));
});

const webhook = (taskId, url, id = "c") =>
  TaskPushNotificationConfig.fromJSON({
    taskId,
    id,
    url,
    token: "t0ken",
    authentication: { scheme: "Bearer", credentials: "s3cret" },
  });

check.add("a webhook is kept, replaced, listed and deleted", ["push configs"], async (caller) => {
  const { client } = caller;
  const taskId = (await caller.send("ask")).id;
  for (const url of ["https://one.example/hook", "https://two.example/hook"])
    for (const shown of [
      await client.createTaskPushNotificationConfig(webhook(taskId, url)),
      await client.getTaskPushNotificationConfig({ tenant: "", taskId, id: "c" }),
    ]) {
      assert.deepEqual([shown.taskId, shown.id, shown.url], [taskId, "c", url]);
      assert.equal(shown.authentication.scheme, "Bearer");
      // Nobody gets secrets back.
      assert.deepEqual([shown.token, shown.authentication.credentials], ["", ""]);
    }
  const list = { tenant: "", taskId, pageSize: 0, pageToken: "" };
  const listed = async () => (await client.listTaskPushNotificationConfig(list)).configs.map(({ id }) => id);
  assert.deepEqual(await listed(), ["c"]);
  for (let times = 0; times < 2; times++)
    await client.deleteTaskPushNotificationConfig({ tenant: "", taskId, id: "c" });
  assert.deepEqual(await listed(), []);
});

check.add("a webhook that cannot be is refused", ["push configs", "errors"], async (caller) => {
  const { client } = caller;
  const taskId = (await caller.send("ask")).id;
  const url = "https://one.example/hook";
  await refused(errors.TaskNotFoundError, client.createTaskPushNotificationConfig(webhook("no-such-task", url)));
  await refused(errors.TaskNotFoundError, client.getTaskPushNotificationConfig({ tenant: "", taskId, id: "none" }));
  const inside = webhook(taskId, "http://169.254.169.254/latest");
  await refused(errors.RequestMalformedError, client.createTaskPushNotificationConfig(inside));
});

v1Only.add("a receiver is told every event of the stream", ["push"], (caller) =>
  hook(async ({ url, until: received }) => {
    const taskPushNotificationConfig = TaskPushNotificationConfig.toJSON(webhook("", url));
    const sent = await caller.client.sendMessage(caller.request("stream 3 5", {}, { taskPushNotificationConfig }));
    const deliveries = await received((body) => body.statusUpdate?.status.state === "TASK_STATE_COMPLETED");
    const payloads = deliveries.map(({ body }) => StreamResponse.fromJSON(body).payload);
    assert.deepEqual([payloads[0].$case, payloads[0].value.id], ["task", sent.id]);
    assert.deepEqual(chunks(payloads), until(3));
    for (const { headers } of deliveries) {
      assert.equal(headers.authorization, "Bearer s3cret");
      assert.equal(headers["x-a2a-notification-token"], "t0ken");
    }
  }),
);

compatOnly.add("a receiver is told the task as its state changes", ["push"], (caller) =>
  hook(async ({ url, until: received }) => {
    const taskPushNotificationConfig = TaskPushNotificationConfig.toJSON(webhook("", url));
    const sent = await caller.client.sendMessage(caller.request("echo hello", {}, { taskPushNotificationConfig }));
    const deliveries = await received((body) => body.status.state === "completed");
    for (const { body } of deliveries) assert.deepEqual([body.kind, body.id], ["task", sent.id]);
    assert.equal(deliveries.at(-1).body.artifacts[0].parts[0].text, "hello");
  }),
);

check.add("a receiver is told what comes after it was registered", ["push"], (caller) =>
  hook(async ({ url, until: received }) => {
    const { id } = await caller.send("ask");
    await caller.client.createTaskPushNotificationConfig(webhook(id, url));
    await caller.send("blue", { taskId: id });
    const deliveries = await received((body) => /completed/i.test((body.statusUpdate ?? body).status?.state));
    assert.match((deliveries[0].body.statusUpdate ?? deliveries[0].body).status.state, /working/i);
  }),
);

const legacyCompat = { enabled: true };
const transports = [
  new sdk.JsonRpcTransportFactory({ legacyCompat }),
  new sdk.RestTransportFactory({ legacyCompat }),
  new GrpcTransportFactory({ legacyCompat }),
];
const cardResolver = new sdk.DefaultAgentCardResolver({ legacyCompat });
const card = await cardResolver.resolve(where.http);
const old = {
  ...card,
  supportedInterfaces: card.supportedInterfaces.filter(({ protocolVersion }) => protocolVersion.startsWith("0.3")),
};

let good = true;
for (const [title, shown, checks] of [["1.0", card, [check, v1Only]], ["0.3 compat", old, [check, compatOnly]]]) {
  for (const transport of transports) {
    const factory = new sdk.ClientFactory({ transports: [transport], cardResolver });
    const caller = new Caller(await factory.createFromAgentCard(shown), cardResolver);
    for (const some of checks) good = (await some.run(`${title} over ${transport.protocolName}`, caller)) && good;
  }
}
finish(good);
