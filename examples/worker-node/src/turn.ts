// What an agent has in its hands while it answers one message.

import { randomUUID } from "node:crypto";
import { create, fromJson, type JsonValue, type MessageInitShape } from "@bufbuild/protobuf";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import {
  type ArtifactChangeSchema,
  type EventSchema,
  type TurnEndSchema,
  type TurnStart,
} from "./gen/dragoman/worker/v1/worker_pb.js";
import { type Message, type Part, PartSchema, TaskState } from "./gen/lf/a2a/v1/a2a_pb.js";
import { type Frame } from "./line.js";

export type Outcome = MessageInitShape<typeof TurnEndSchema>["outcome"];
type Artifacts = MessageInitShape<typeof ArtifactChangeSchema>[];

/** Uncommitted frames of events after which a verb waits. The server gives up on a turn at many more. */
const WINDOW = 64;

/** Thrown by the verbs that end a turn. Let it pass: it says how the turn ended. */
export class TurnEnded extends Error {
  constructor(readonly outcome: Outcome) {
    super("the turn has ended");
  }
}

/** The agent stops because somebody asked it to, or because nothing it says is taken any more. */
export class Stopped extends Error {
  constructor(readonly reason: string) {
    super(reason);
  }
}

export class Turn {
  /** Aborted, with a Stopped, when the agent is to stop. */
  readonly signal: AbortSignal;
  readonly artifacts: Artifacts = [];
  private readonly stopping = new AbortController();
  private number = 0n;
  private committed = 0n;
  private begun = new Set<string>();
  private waiting: (() => void)[] = [];

  constructor(
    private readonly start: TurnStart,
    private readonly say: (frame: Frame) => void,
  ) {
    this.signal = this.stopping.signal;
  }

  get id(): string {
    return this.start.turnId;
  }

  /** The message to answer. */
  get message(): Message | undefined {
    return this.start.message;
  }

  /** Its text parts, one under the other. */
  get text(): string {
    return (this.message?.parts ?? []).flatMap((one) => (one.content.case === "text" ? [one.content.value] : [])).join("\n");
  }

  /** What the agent asked when it last waited for the caller; undefined in a first turn. */
  get asked(): Message | undefined {
    return this.start.asked;
  }

  /** How often this turn was begun: more than once when a worker that ran it was lost. */
  get attempt(): number {
    return this.start.attempt;
  }

  // Verbs: each resolves when there is room for more ---------------------------------------------------------------

  /** Says how it goes. */
  status(text: string): Promise<void> {
    return this.put({ case: "status", value: { state: TaskState.WORKING, message: { parts: [part(text)] } } });
  }

  /** Adds text to an artifact that grows; the first chunk of a turn begins it anew. */
  chunk(text: string, artifactId = this.output): Promise<void> {
    const append = this.begun.has(artifactId);
    this.begun.add(artifactId);
    return this.put({ case: "text", value: { artifactId, text, append } });
  }

  /** An artifact of its own, which goes out with the end of the turn. */
  result(parts: Part[], name = ""): void {
    this.artifacts.push({ artifact: { artifactId: randomUUID(), name, parts } });
  }

  /** Resolves when everything said so far is on disk. */
  async flush(): Promise<void> {
    while (this.committed < this.number) await this.change();
  }

  ask(text: string): never {
    throw new TurnEnded(ending(TaskState.INPUT_REQUIRED, text));
  }

  needAuth(text: string): never {
    throw new TurnEnded(ending(TaskState.AUTH_REQUIRED, text));
  }

  reject(text: string): never {
    throw new TurnEnded(ending(TaskState.REJECTED, text));
  }

  /** Answers with a Message instead of a task, where the agent is `direct`. */
  reply(text: string): never {
    throw new TurnEnded({ case: "reply", value: { parts: [part(text)] } });
  }

  /** Waits; rejects with Stopped at once when the agent is to stop. */
  sleep(milliseconds: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const stop = () => {
        clearTimeout(timer);
        reject(this.signal.reason);
      };
      const timer = setTimeout(() => {
        this.signal.removeEventListener("abort", stop);
        resolve();
      }, milliseconds);
      if (this.signal.aborted) stop();
      else this.signal.addEventListener("abort", stop, { once: true });
    });
  }

  // What the worker is told ----------------------------------------------------------------------------------------

  confirm(number: bigint): void {
    this.committed = number;
    this.wake();
  }

  stop(reason: string): void {
    this.stopping.abort(new Stopped(reason));
    this.wake();
  }

  private get output(): string {
    return this.start.turnsBefore ? `output-${this.start.turnsBefore + 1}` : "output";
  }

  private async put(event: MessageInitShape<typeof EventSchema>["event"]): Promise<void> {
    this.signal.throwIfAborted();
    this.number += 1n;
    this.say({ case: "events", value: { turnId: this.id, number: this.number, events: [{ event }] } });
    while (this.number - this.committed >= WINDOW) await this.change();
  }

  private async change(): Promise<void> {
    this.signal.throwIfAborted();
    await new Promise<void>((resolve) => this.waiting.push(resolve));
    this.signal.throwIfAborted();
  }

  private wake(): void {
    for (const resolve of this.waiting.splice(0)) resolve();
  }
}

export function ending(state: TaskState, text = ""): Outcome {
  return { case: "status", value: { state, ...(text && { message: { parts: [part(text)] } }) } };
}

export function part(text: string): Part {
  return create(PartSchema, { content: { case: "text", value: text } });
}

export function data(value: JsonValue): Part {
  return create(PartSchema, { content: { case: "data", value: fromJson(ValueSchema, value) } });
}

export function file(text: string, filename: string, mediaType: string): Part {
  return create(PartSchema, { content: { case: "raw", value: new TextEncoder().encode(text) }, filename, mediaType });
}
