// @a2a-js/sdk 1.x on a server that offers nothing: what is asked for all the same is refused with the right error.
// The SDK looks at the card before it asks, so its clients are given one that promises everything.

import assert from "node:assert/strict";
import { SendMessageRequest, TaskPushNotificationConfig, TaskState } from "@a2a-js/sdk";
import * as sdk from "@a2a-js/sdk/client";
import { GrpcTransportFactory } from "@a2a-js/sdk/client/grpc";
import * as errors from "@a2a-js/sdk/errors";
import { Checks, finish, where } from "./checks.mjs";

const bare = new Checks("@a2a-js/sdk");
const v1Only = new Checks("@a2a-js/sdk");

const URL = "https://one.example/hook";
const webhook = (taskId) => TaskPushNotificationConfig.fromJSON({ taskId, id: "c", url: URL });

function request(configuration = undefined, tenant = "") {
  const message = { messageId: "m-1", role: "ROLE_USER", parts: [{ text: "hello" }] };
  return SendMessageRequest.fromJSON({ tenant, message, configuration });
}

async function collect(stream) {
  for await (const _ of stream);
}

/** `call` has to fail with `kind`. The SDK puts the error of an SSE event below a plain one. */
async function refused(kind, call) {
  await assert.rejects(call, (error) => {
    const found = error instanceof kind ? error : error.cause;
    assert.ok(found instanceof kind, `${error.name}: ${error.message}`);
    return true;
  });
}

bare.add("what needs no capability works", ["refusals"], async (client) => {
  assert.equal((await client.sendMessage(request())).status.state, TaskState.TASK_STATE_COMPLETED);
});

bare.add("streams are an unsupported operation", ["refusals"], async (client) => {
  const { id } = await client.sendMessage(request());
  await refused(errors.UnsupportedOperationError, collect(client.sendMessageStream(request())));
  await refused(errors.UnsupportedOperationError, collect(client.resubscribeTask({ tenant: "", id })));
});

bare.add("webhooks are not supported", ["refusals"], async (client) => {
  const taskId = (await client.sendMessage(request())).id;
  const off = errors.PushNotificationNotSupportedError;
  await refused(off, client.createTaskPushNotificationConfig(webhook(taskId)));
  await refused(off, client.getTaskPushNotificationConfig({ tenant: "", taskId, id: "c" }));
  const all = { tenant: "", taskId, pageSize: 0, pageToken: "" };
  await refused(off, client.listTaskPushNotificationConfig(all));
  await refused(off, client.deleteTaskPushNotificationConfig({ tenant: "", taskId, id: "c" }));
  await refused(off, client.sendMessage(request({ taskPushNotificationConfig: { url: URL } })));
});

v1Only.add("an extended card is an unsupported operation", ["refusals"], async (client) => {
  await refused(errors.UnsupportedOperationError, client.transport.getExtendedAgentCard({ tenant: "" }));
});

v1Only.add("an extension that is required has to be named", ["refusals"], async (client) => {
  await refused(errors.ExtensionSupportRequiredError, client.sendMessage(request(undefined, "strict")));
});

const legacyCompat = { enabled: true };
const transports = [
  new sdk.JsonRpcTransportFactory({ legacyCompat }),
  new sdk.RestTransportFactory({ legacyCompat }),
  new GrpcTransportFactory({ legacyCompat }),
];
const cardResolver = new sdk.DefaultAgentCardResolver({ legacyCompat });
const served = await cardResolver.resolve(where.http);
assert.deepEqual([served.capabilities.streaming, served.capabilities.pushNotifications], [false, false]);
assert.ok(!served.capabilities.extendedAgentCard);
const promised = { ...served.capabilities, streaming: true, pushNotifications: true, extendedAgentCard: true };
const card = { ...served, capabilities: promised };
const old = {
  ...card,
  supportedInterfaces: card.supportedInterfaces.filter(({ protocolVersion }) => protocolVersion.startsWith("0.3")),
};

let good = true;
for (const [title, shown, checks] of [["1.0", card, [bare, v1Only]], ["0.3 compat", old, [bare]]]) {
  for (const transport of transports) {
    const factory = new sdk.ClientFactory({ transports: [transport], cardResolver });
    const client = await factory.createFromAgentCard(shown);
    for (const some of checks) good = (await some.run(`${title} over ${transport.protocolName}`, client)) && good;
  }
}
finish(good);
