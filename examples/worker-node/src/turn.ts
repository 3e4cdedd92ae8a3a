// The turn context of an agent.

import { randomUUID } from "node:crypto";
import { create, fromJson, type JsonValue, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs, timestampMs, timestampNow, ValueSchema } from "@bufbuild/protobuf/wkt";
import {
  type ArtifactChangeSchema,
  type EventSchema,
  type Step,
  StepState,
  type StepSchema,
  type TurnEndSchema,
  type TurnStart,
} from "./gen/dragoman/worker/v1/worker_pb.js";
import { type Message, type Part, PartSchema, TaskState } from "./gen/lf/a2a/v1/a2a_pb.js";
import { type Frame } from "./line.js";

export type Outcome = MessageInitShape<typeof TurnEndSchema>["outcome"];
type Artifacts = MessageInitShape<typeof ArtifactChangeSchema>[];

/** Uncommitted event frames after which a method waits. The server aborts a turn at a much higher number. */
const WINDOW = 64;

/** Thrown by the methods that end a turn. Do not catch it: it holds the result of the turn. */
export class TurnEnded extends Error {
  constructor(readonly outcome: Outcome) {
    super("the turn has ended");
  }
}

/** The agent has to stop: the task was canceled, or the worker has lost its claim. */
export class Stopped extends Error {
  constructor(readonly reason: string) {
    super(reason);
  }
}

export class Turn {
  /** Aborted with a Stopped when the agent has to stop. */
  readonly signal: AbortSignal;
  readonly artifacts: Artifacts = [];
  private readonly stopping = new AbortController();
  private number = 0n;
  private committed = 0n;
  private begun = new Set<string>();
  private waiting: (() => void)[] = [];
  private position = 0;
  private uses = new Map<string, number>();

  constructor(
    private readonly start: TurnStart,
    private readonly send: (frame: Frame) => void,
  ) {
    this.signal = this.stopping.signal;
  }

  get id(): string {
    return this.start.turnId;
  }

  /** The message of the turn. */
  get message(): Message | undefined {
    return this.start.message;
  }

  /** The text parts of the message, joined by line breaks. */
  get text(): string {
    return (this.message?.parts ?? []).flatMap((one) => (one.content.case === "text" ? [one.content.value] : [])).join("\n");
  }

  /** The agent's last question; undefined in a first turn. */
  get question(): Message | undefined {
    return this.start.question;
  }

  /** Attempt number of this turn: more than 1 if a worker was lost. */
  get attempt(): number {
    return this.start.attempt;
  }

  // Methods: each resolves when more frames can be sent ------------------------------------------------------------

  /** Reports progress. */
  status(text: string): Promise<void> {
    return this.put({ case: "status", value: { state: TaskState.WORKING, message: { parts: [part(text)] } } });
  }

  /** Appends text to an artifact; the first chunk of a turn replaces it. */
  chunk(text: string, artifactId = this.output): Promise<void> {
    const append = this.begun.has(artifactId);
    this.begun.add(artifactId);
    return this.put({ case: "text", value: { artifactId, text, append } });
  }

  /** Adds an artifact, which is sent with the end of the turn. */
  result(parts: Part[], name = ""): void {
    this.artifacts.push({ artifact: { artifactId: randomUUID(), name, parts } });
  }

  /** Resolves when everything so far is committed. */
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

  /** Responds with a Message instead of a task; only for `direct` agents. */
  reply(text: string): never {
    throw new TurnEnded({ case: "reply", value: { parts: [part(text)] } });
  }

  /** Waits; rejects with Stopped as soon as the agent has to stop. */
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

  // Durable steps: what an earlier run of this turn has stored is not done again ------------------------------------

  /** Runs a function, or returns the stored result of an earlier run. The result is JSON. */
  async step<T extends JsonValue>(name: string, run: () => Promise<T>): Promise<T> {
    const [stored, place] = this.begin(name);
    if (stored?.state === StepState.DONE && stored.result?.content.case === "raw")
      return JSON.parse(new TextDecoder().decode(stored.result.content.value)) as T;
    const started = timestampNow();
    const value = await run();
    const raw = new TextEncoder().encode(JSON.stringify(value));
    const result = { content: { case: "raw" as const, value: raw }, mediaType: "application/json" };
    const sent = this.store({ ...place, state: StepState.DONE, attempt: 1, started, ended: timestampNow(), result });
    while (this.committed < sent) await this.change();
    return value;
  }

  /** Releases the turn for this long; then the agent is called again, and gets past this line. */
  pause(milliseconds: number): void {
    const [stored, place] = this.begin("sleep");
    const wakeAt = stored?.wakeAt ?? timestampFromMs(Date.now() + milliseconds);
    if (stored && timestampMs(wakeAt) <= Date.now()) return;
    this.store({ ...place, state: StepState.SLEEPING, attempt: 1, started: timestampNow(), wakeAt });
    throw new TurnEnded({ case: "pause", value: { until: wakeAt } });
  }

  /** Sends a step. Returns the number that confirms it. */
  private store(step: MessageInitShape<typeof StepSchema>): bigint {
    this.signal.throwIfAborted();
    this.number += 1n;
    this.send({ case: "events", value: { turnId: this.id, number: this.number, stateUpdate: { steps: [step] } } });
    return this.number;
  }

  private begin(name: string): [Step | undefined, { name: string; number: number; position: number }] {
    const number = (this.uses.get(name) ?? 0) + 1;
    const position = this.position++;
    this.uses.set(name, number);
    const there = this.start.steps.find((one) => one.position === position);
    if (there && (there.name !== name || there.number !== number))
      throw new Error(`step ${position + 1} of this turn is "${name}", and was "${there.name}" in its earlier run`);
    return [there, { name, number, position }];
  }

  // Called by the worker -------------------------------------------------------------------------------------------

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
    this.send({ case: "events", value: { turnId: this.id, number: this.number, events: [{ event }] } });
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
