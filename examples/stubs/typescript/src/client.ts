// Sends a message to an agent over gRPC, then REST: `npm start -- http://127.0.0.1:50051 http://127.0.0.1:8080 hello`.
import { create, fromJson, toJson } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import type { Part, SendMessageRequest } from "./gen/lf/a2a/v1/a2a_pb.js";
import {
  A2AService,
  Role,
  SendMessageRequestSchema,
  SendMessageResponseSchema,
  TaskState,
} from "./gen/lf/a2a/v1/a2a_pb.js";

function request(messageId: string, text: string): SendMessageRequest {
  const parts = [{ content: { case: "text" as const, value: text } }];
  return create(SendMessageRequestSchema, { message: { messageId, role: Role.USER, parts } });
}

const texts = (parts: Part[]) => parts.map((part) => part.content.value);

async function streamOverGrpc(baseUrl: string, text: string) {
  const client = createClient(A2AService, createGrpcTransport({ baseUrl }));
  for await (const { payload } of client.sendStreamingMessage(request("m-grpc", text))) {
    const chunk = payload.case === "artifactUpdate" ? (payload.value.artifact?.parts ?? []) : [];
    console.log(payload.case, ...texts(chunk));
  }
}

/** The same message as JSON, by toJson. A2A-Version chooses the form of the answer. */
async function sendOverRest(server: string, text: string) {
  const response = await fetch(`${server}/message:send`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "A2A-Version": "1.0" },
    body: JSON.stringify(toJson(SendMessageRequestSchema, request("m-rest", text))),
  });
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
  const { payload } = fromJson(SendMessageResponseSchema, await response.json());
  if (payload.case !== "task") return;
  const parts = payload.value.artifacts.flatMap((artifact) => artifact.parts);
  console.log(TaskState[payload.value.status?.state ?? 0], ...texts(parts));
}

const [grpc = "", http = "", ...words] = process.argv.slice(2);
await streamOverGrpc(grpc, words.join(" "));
await sendOverRest(http, words.join(" "));
