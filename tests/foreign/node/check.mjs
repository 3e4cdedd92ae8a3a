// A Node client and a downstream service: the commands of proto/README.md, in a folder outside the project.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";
import { Checks, finish, where } from "./checks.mjs";

const modules = join(dirname(fileURLToPath(import.meta.url)), "node_modules");
const credentials = grpc.credentials.createInsecure();
const message = (text) => ({ message_id: "m1", role: "ROLE_USER", parts: [{ text }] });
const loaded = new Checks();
const generating = new Checks();

// The server's protos, read as they are.

execFileSync("make", ["-C", where.project, "googleapis"], { stdio: "pipe" });
const definition = loader.loadSync("lf/a2a/v1/a2a.proto", {
  includeDirs: [join(where.project, "proto"), join(where.project, "third_party", "googleapis")],
  enums: String,
  keepCase: true,
  oneofs: true,
});
const { A2AService } = grpc.loadPackageDefinition(definition).lf.a2a.v1;
const client = new A2AService(where.grpc, credentials);
const call = (rpc, request) =>
  new Promise((resolve, reject) => client[rpc](request, (error, answer) => (error ? reject(error) : resolve(answer))));

loaded.add("it sends and gets", [], async () => {
  const { task } = await call("SendMessage", { message: message("echo hello") });
  assert.equal(task.status.state, "TASK_STATE_COMPLETED");
  assert.equal(task.artifacts[0].parts[0].text, "hello");
  assert.equal((await call("GetTask", { id: task.id })).id, task.id);
});

loaded.add("it streams", [], async () => {
  const kinds = [];
  for await (const event of client.SendStreamingMessage({ message: message("stream 3") })) kinds.push(event.payload);
  assert.deepEqual(kinds, ["task", "status_update", ...Array(3).fill("artifact_update"), "status_update"]);
});

loaded.add("it is told what was wrong", [], async () => {
  await assert.rejects(call("GetTask", { id: "no-such-task" }), (error) => error.code === grpc.status.NOT_FOUND);
});

// A downstream service that generates its own code from the committed image.

generating.add("generated code talks to the server", [], async () => {
  const folder = mkdtempSync(join(tmpdir(), "downstream-"));
  try {
    symlinkSync(modules, join(folder, "node_modules"));
    const image = join(where.project, "gen", "dragoman.binpb");
    const generate = (target, out) => {
      writeFileSync(
        join(folder, "buf.gen.yaml"),
        `version: v2\ninputs:\n  - binary_image: ${image}\nplugins:\n  - local: node_modules/.bin/protoc-gen-es\n` +
          `    out: ${out}\n    opt: [target=${target}, import_extension=js]\n    include_imports: true\n`,
      );
      execFileSync(join(folder, "node_modules", ".bin", "buf"), ["generate"], { cwd: folder, stdio: "pipe" });
    };
    generate("ts", "src/gen");
    assert.ok(existsSync(join(folder, "src/gen/a2a/v1/a2a_pb.ts")));
    generate("js", "js/gen");
    writeFileSync(join(folder, "package.json"), '{"type": "module"}');
    const generated = await import(pathToFileURL(join(folder, "js/gen/lf/a2a/v1/a2a_pb.js")));
    const { create, fromBinary, toBinary } = await import("@bufbuild/protobuf");
    const request = create(generated.SendMessageRequestSchema, {
      message: { messageId: "m1", role: 1, parts: [{ content: { case: "text", value: "echo hello" } }] },
    });
    const raw = new grpc.Client(where.grpc, credentials);
    const answer = await new Promise((resolve, reject) =>
      raw.makeUnaryRequest(
        "/lf.a2a.v1.A2AService/SendMessage",
        (one) => Buffer.from(toBinary(generated.SendMessageRequestSchema, one)),
        (bytes) => fromBinary(generated.SendMessageResponseSchema, bytes),
        request,
        (error, found) => (error ? reject(error) : resolve(found)),
      ),
    );
    assert.equal(answer.payload.value.artifacts[0].parts[0].content.value, "hello");
    raw.close();
  } finally {
    rmSync(folder, { recursive: true });
  }
});

const good = await loaded.run("proto-loader");
finish((await generating.run("buf generate")) && good);
