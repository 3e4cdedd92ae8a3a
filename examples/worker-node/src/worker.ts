// A worker: registers its agents, runs the turns it receives, and reconnects when the stream breaks.

import { hostname } from "node:os";
import { type MessageInitShape } from "@bufbuild/protobuf";
import { status as codes, type StatusObject } from "@grpc/grpc-js";
import { type AgentRegistrationSchema, type ConnectResponse, type TurnStart } from "./gen/dragoman/worker/v1/worker_pb.js";
import { TaskState } from "./gen/lf/a2a/v1/a2a_pb.js";
import { Line, type Server } from "./line.js";
import { ending, type Outcome, Stopped, Turn, TurnEnded } from "./turn.js";

export interface Agent {
  registration: MessageInitShape<typeof AgentRegistrationSchema> & { id: string };
  /** Runs one turn. An exception makes the task FAILED. */
  run(turn: Turn): Promise<void>;
}

/** Statuses for which a reconnect is useless: the configuration has to change. */
const HOPELESS = new Set([
  codes.INVALID_ARGUMENT,
  codes.ALREADY_EXISTS,
  codes.UNAUTHENTICATED,
  codes.PERMISSION_DENIED,
  codes.UNIMPLEMENTED,
]);

/** Milliseconds until a reconnect, at first and at most. */
const AGAIN = [500, 15_000] as const;

export class Worker {
  private line: Line | undefined;
  private readonly turns = new Map<string, Turn>();
  private readonly agents: Map<string, Agent>;
  private draining = false;
  private wait: number = AGAIN[0];
  private idle: () => void = () => {};

  /** `credit`: concurrent turns of each agent. */
  constructor(
    private readonly server: Server,
    agents: Agent[],
    private readonly credit = 100,
    private readonly log: (line: string) => void = console.error,
  ) {
    this.agents = new Map(agents.map((agent) => [agent.registration.id, agent]));
  }

  /** Serves until `drain` is done. Rejects if the server rejects the worker permanently. */
  async run(): Promise<void> {
    while (!this.draining) {
      const status = await this.serve();
      if (this.draining) return;
      if (HOPELESS.has(status.code)) throw new Error(`${codes[status.code]}: ${status.details}`);
      this.log(`the line is broken (${codes[status.code]}: ${status.details}); dialling again in ${this.wait} ms`);
      await new Promise((resolve) => setTimeout(resolve, this.wait));
      this.wait = Math.min(2 * this.wait, AGAIN[1]);
    }
  }

  /** Accepts no more turns, and disconnects when the running ones have ended. */
  async drain(): Promise<void> {
    this.draining = true;
    this.line?.send({ case: "drain", value: {} });
    if (this.turns.size) await new Promise<void>((resolve) => (this.idle = resolve));
    this.line?.finish();
  }

  private async serve(): Promise<StatusObject> {
    const status = await new Promise<StatusObject>((resolve) => {
      this.line = new Line(this.server, (frame) => this.receive(frame), resolve);
      const agents = [...this.agents.values()].map((agent) => ({ ...agent.registration, turns: this.credit }));
      this.line.send({ case: "hello", value: { name: `${hostname()}:${process.pid}`, agents } });
    });
    this.line = undefined;
    for (const turn of this.turns.values()) turn.stop("the line to the server is broken");
    this.turns.clear();
    this.idle();
    return status;
  }

  private receive({ frame }: ConnectResponse): void {
    switch (frame.case) {
      case "welcome":
        this.wait = AGAIN[0];
        this.log(`serving ${[...this.agents.keys()].join(", ")} at ${this.server.address}`);
        break;
      case "turnStart":
        void this.begin(frame.value);
        break;
      case "committed":
        this.turns.get(frame.value.turnId)?.confirm(frame.value.number);
        break;
      case "cancel":
        this.turns.get(frame.value.turnId)?.stop(frame.value.reason);
        break;
      case "turnRevoked": {
        const turn = this.turns.get(frame.value.turnId);
        this.turns.delete(frame.value.turnId); // so that nothing more is said of it
        turn?.stop(frame.value.reason);
        break;
      }
    }
  }

  private async begin(start: TurnStart): Promise<void> {
    const line = this.line;
    const agent = this.agents.get(start.agentId);
    if (!line || !agent) return;
    const turn = new Turn(start, (frame) => this.turns.has(start.turnId) && line === this.line && line.send(frame));
    this.turns.set(turn.id, turn);
    const outcome = await this.outcome(agent, turn);
    if (line !== this.line) return; // the server has ended it
    if (this.turns.delete(turn.id)) {
      const artifacts = outcome?.case === "status" && outcome.value.state === TaskState.COMPLETED ? turn.artifacts : [];
      line.send({ case: "turnEnd", value: { turnId: turn.id, outcome, artifacts } });
    }
    if (this.draining) {
      if (!this.turns.size) this.idle();
    } else line.send({ case: "credit", value: { agentId: start.agentId, turns: 1 } });
  }

  private async outcome(agent: Agent, turn: Turn): Promise<Outcome> {
    try {
      await agent.run(turn);
      return ending(TaskState.COMPLETED);
    } catch (error) {
      if (error instanceof TurnEnded) return error.outcome;
      if (error instanceof Stopped) return { case: "canceled", value: {} };
      this.log(`agent ${agent.registration.id} failed: ${error instanceof Error ? error.stack : error}`);
      return ending(TaskState.FAILED, error instanceof Error ? `${error.name}: ${error.message}` : String(error));
    }
  }
}
