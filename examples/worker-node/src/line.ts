// One stream to the server: incoming and outgoing frames, and heartbeats on both sides.

import { readFileSync } from "node:fs";
import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { type Duration } from "@bufbuild/protobuf/wkt";
import * as grpc from "@grpc/grpc-js";
import {
  type ConnectRequest,
  ConnectRequestSchema,
  type ConnectResponse,
  ConnectResponseSchema,
} from "./gen/dragoman/worker/v1/worker_pb.js";

export type Frame = MessageInitShape<typeof ConnectRequestSchema>["frame"];

export interface Server {
  address: string;
  /** An API key or another bearer token; empty if the server requires none. */
  key: string;
  /** The trusted authorities (PEM); undefined: the stream is not encrypted. */
  ca: string | undefined;
}

const PATH = "/dragoman.worker.v1.WorkerService/Connect";

/** Milliseconds without a frame until the server has sent its own heartbeat interval. */
const BEFORE_WELCOME = 10_000;

export class Line {
  private readonly client: grpc.Client;
  private readonly call: grpc.ClientDuplexStream<ConnectRequest, ConnectResponse>;
  private lastReceived = Date.now();
  private lastSent = Date.now();
  private lease = BEFORE_WELCOME;
  private pulse: NodeJS.Timeout;

  /** Connects immediately. `ended` is called once, with the status that ended the stream. */
  constructor(server: Server, onFrame: (frame: ConnectResponse) => void, ended: (status: grpc.StatusObject) => void) {
    const credentials =
      server.ca === undefined
        ? grpc.credentials.createInsecure()
        : grpc.credentials.createSsl(server.ca ? readFileSync(server.ca) : null);
    this.client = new grpc.Client(server.address, credentials, {
      "grpc.max_receive_message_length": -1,
      "grpc.max_send_message_length": -1,
      "grpc.keepalive_time_ms": 20_000,
      "grpc.enable_retries": 0,
    });
    const metadata = new grpc.Metadata();
    if (server.key) metadata.set("authorization", `Bearer ${server.key}`);
    this.call = this.client.makeBidiStreamRequest(
      PATH,
      (frame: ConnectRequest) => Buffer.from(toBinary(ConnectRequestSchema, frame)),
      (bytes: Buffer) => fromBinary(ConnectResponseSchema, bytes),
      metadata,
    );
    this.call.on("data", (frame: ConnectResponse) => {
      this.lastReceived = Date.now();
      if (frame.frame.case === "welcome") {
        this.lease = milliseconds(frame.frame.value.lease);
        this.beat(milliseconds(frame.frame.value.heartbeat));
      }
      onFrame(frame);
    });
    this.call.on("error", () => {}); // "status" says the same, and comes in any case
    this.call.on("status", (status: grpc.StatusObject) => {
      clearInterval(this.pulse);
      this.client.close();
      ended(status);
    });
    this.pulse = setInterval(() => this.live(1000), 500);
  }

  /** Sends a frame. */
  send(frame: Frame): void {
    this.lastSent = Date.now();
    this.call.write(create(ConnectRequestSchema, { frame }));
  }

  /** Half-closes the stream; the server then ends it. */
  finish(): void {
    this.call.end();
  }

  private beat(every: number): void {
    clearInterval(this.pulse);
    this.pulse = setInterval(() => this.live(every), every / 2);
  }

  /** Sends a heartbeat, and checks the server's. */
  private live(every: number): void {
    if (Date.now() - this.lastReceived > this.lease) this.call.cancel();
    else if (Date.now() - this.lastSent >= every) this.send({ case: "heartbeat", value: {} });
  }
}

function milliseconds(duration: Duration | undefined): number {
  return Number(duration?.seconds ?? 0n) * 1000 + (duration?.nanos ?? 0) / 1e6;
}
