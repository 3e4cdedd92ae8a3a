// Sends a message to an agent: `npm start -- http://127.0.0.1:50051 hello`.
import { randomUUID } from "node:crypto";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { A2AService, Role } from "./gen/lf/a2a/v1/a2a_pb.js";

const [baseUrl = "", ...words] = process.argv.slice(2);
const client = createClient(A2AService, createGrpcTransport({ baseUrl }));
const parts = [{ content: { case: "text" as const, value: words.join(" ") } }];
const message = { messageId: randomUUID(), role: Role.USER, parts };
for await (const { payload } of client.sendStreamingMessage({ message })) {
  const chunk = payload.case === "artifactUpdate" ? (payload.value.artifact?.parts ?? []) : [];
  console.log(payload.case, ...chunk.map((part) => part.content.value));
}
