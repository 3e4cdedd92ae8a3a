// @a2a-js/sdk 0.3 on a server that offers nothing: what is asked for all the same is refused with the right error.
// The SDK looks at the card before it asks, so its clients are given one that promises everything.

import assert from "node:assert/strict";
import * as sdk from "@a2a-js/sdk/client";
import { GrpcTransportFactory } from "@a2a-js/sdk/client/grpc";
import { Checks, finish, where } from "./checks.mjs";

const bare = new Checks("@a2a-js/sdk");

const pushNotificationConfig = { id: "c", url: "https://one.example/hook" };

function request(configuration = undefined) {
  const parts = [{ kind: "text", text: "hello" }];
  return { message: { kind: "message", messageId: "m-1", role: "user", parts }, configuration };
}

async function collect(stream) {
  for await (const _ of stream);
}

/** `call` has to fail with `kind`: itself, below a plain one (an SSE event), or by its name in one (gRPC). */
async function refused(kind, call) {
  await assert.rejects(call, (error) => {
    const named = error instanceof kind || error.cause instanceof kind || error.message.includes(` ${kind.name}: `);
    assert.ok(named, `${error.name}: ${error.message}`);
    return true;
  });
}

bare.add("what needs no capability works", ["refusals"], async (client) => {
  assert.equal((await client.sendMessage(request())).status.state, "completed");
});

bare.add("streams are an unsupported operation", ["refusals"], async (client) => {
  const { id } = await client.sendMessage(request());
  await refused(sdk.UnsupportedOperationError, collect(client.sendMessageStream(request())));
  await refused(sdk.UnsupportedOperationError, collect(client.resubscribeTask({ id })));
});

bare.add("webhooks are not supported", ["refusals"], async (client) => {
  const { id } = await client.sendMessage(request());
  const one = { id, pushNotificationConfigId: "c" };
  const off = sdk.PushNotificationNotSupportedError;
  await refused(off, client.setTaskPushNotificationConfig({ taskId: id, pushNotificationConfig }));
  await refused(off, client.getTaskPushNotificationConfig(one));
  await refused(off, client.listTaskPushNotificationConfig({ id }));
  await refused(off, client.deleteTaskPushNotificationConfig(one));
  await refused(off, client.sendMessage(request({ pushNotificationConfig, blocking: true })));
});

const served = await new sdk.DefaultAgentCardResolver().resolve(where.http);
assert.deepEqual([served.capabilities.streaming ?? false, served.capabilities.pushNotifications ?? false], [false, false]);
assert.ok(!served.supportsAuthenticatedExtendedCard);
const card = { ...served, capabilities: { ...served.capabilities, streaming: true, pushNotifications: true } };

let good = true;
for (const transport of [
  new sdk.JsonRpcTransportFactory(),
  new sdk.RestTransportFactory(),
  new GrpcTransportFactory(),
]) {
  const client = await new sdk.ClientFactory({ transports: [transport] }).createFromAgentCard(card);
  good = (await bare.run(transport.protocolName, client)) && good;
}
finish(good);
