// A task as folded from its events: the lines of its conversation and its current artifacts.

import {
  isTerminal,
  isWaiting,
  type Artifact,
  type Message,
  type Part,
  type State,
  type StreamResponse,
  type Task,
  type Usage,
} from "../shared/messages";

/** One line of a timeline. Consecutive chunks of an artifact are one line. */
export interface Line {
  kind: "created" | "status" | "artifact" | "user" | "gap";
  first: number;
  last: number;
  time?: string;
  state?: State;
  message?: Message;
  artifact?: Artifact;
  /** The parts replace earlier content of the artifact. */
  replaces?: boolean;
  complete?: boolean;
  attempt?: number;
  /** Why the attempt before failed. */
  error?: string;
}

export class TaskProjection {
  lines: Line[] = [];
  artifacts = new Map<string, Artifact>();
  state: State = "TASK_STATE_UNSPECIFIED";
  stateSince = "";
  context = "";
  last = 0;
  /** When the last event happened, in milliseconds; 0 if that is not known. Chunks of artifacts have no time. */
  lastEventTime = 0;
  usage: Usage | undefined;
  /** Set when the user may have sent a message, which no event contains. */
  historyIsStale = false;
  private messageIds = new Set<string>();

  /** Folds an event, received at `now` if it is new. Returns whether it ends the task. */
  apply(event: StreamResponse, sequence: number, now = 0): boolean {
    if (sequence && sequence <= this.last) return isTerminal(this.state);
    this.last = sequence || this.last;
    const metadata = event.task?.metadata ?? event.statusUpdate?.metadata;
    const usage = metadata?.["usage"] as Usage | undefined;
    if (usage) this.usage = usage;
    if (event.task) this.applyTask(event.task, sequence);
    if (event.statusUpdate) {
      const { status } = event.statusUpdate;
      // A status without a message accepts the user's message.
      if (!status.message && (isWaiting(this.state) || status.state === this.state)) this.historyIsStale = true;
      const attempt = typeof metadata?.["attempt"] === "number" ? metadata["attempt"] : undefined;
      this.lines.push({
        kind: "status",
        first: sequence,
        last: sequence,
        time: status.timestamp,
        state: status.state,
        message: status.message,
        attempt,
        error: typeof metadata?.["error"] === "string" ? metadata["error"] : undefined,
      });
      this.state = status.state;
      this.stateSince = status.timestamp ?? this.stateSince;
    }
    const time = event.statusUpdate?.status.timestamp ?? event.task?.status.timestamp;
    this.lastEventTime = now || (time ? new Date(time).getTime() : this.lastEventTime);
    if (event.artifactUpdate) this.applyArtifact(event.artifactUpdate.artifact, sequence, event.artifactUpdate);
    return isTerminal(this.state);
  }

  /** The message that began the task, if it is known. */
  get firstMessage(): Message | undefined {
    return this.lines.find((line) => line.kind === "user")?.message;
  }

  /** The user's request in one line: the beginning of the first message. */
  get requestText(): string {
    const parts = this.firstMessage?.parts ?? [];
    const text = parts.map((part) => part.text?.trim().split("\n")[0]).find(Boolean);
    return text?.slice(0, 300) ?? parts.map((part) => part.filename ?? (part.data === undefined ? "" : "JSON data")).find(Boolean) ?? "";
  }

  /** The current question, or the error that ended the task. */
  get notice(): Message | undefined {
    if (!isWaiting(this.state) && !/(FAILED|REJECTED)$/.test(this.state)) return undefined;
    return this.lines.findLast((line) => line.kind === "status" && line.state === this.state)?.message;
  }

  /** Inserts the user's messages after the agent's earlier output. */
  addUserMessages(history: readonly Message[]): void {
    this.historyIsStale = false;
    let after = "";
    for (const message of history) {
      if (message.role === "ROLE_USER" && !this.messageIds.has(message.messageId)) {
        this.messageIds.add(message.messageId);
        const line: Line = { kind: "user", first: this.last, last: this.last, message };
        const before = after ? this.lines.findIndex((line) => line.message?.messageId === after) : -1;
        const index = before < 0 ? Math.min(1, this.lines.length) : before + 1;
        const anchor = this.lines[index - 1];
        line.first = line.last = anchor?.last ?? 0;
        this.lines.splice(index, 0, line);
      }
      after = message.messageId;
    }
  }

  private applyTask(task: Task, sequence: number): void {
    this.context = task.contextId;
    this.state = task.status.state;
    this.stateSince = task.status.timestamp ?? "";
    const gap = "urn:dragoman:resume:v1" in (task.metadata ?? {}) && sequence > 1;
    this.lines.push({
      kind: gap ? "gap" : "created",
      first: sequence,
      last: sequence,
      time: task.status.timestamp,
      state: task.status.state,
    });
    this.addUserMessages(task.history ?? []);
    if (task.status.message) {
      this.lines.push({ kind: "status", first: sequence, last: sequence, state: this.state, message: task.status.message });
    }
    if (gap) this.artifacts.clear();
    for (const artifact of task.artifacts ?? []) this.applyArtifact(artifact, sequence, {});
  }

  private applyArtifact(chunk: Artifact, sequence: number, update: { append?: boolean; lastChunk?: boolean }): void {
    const known = this.artifacts.get(chunk.artifactId);
    if (!known || !update.append) {
      this.artifacts.set(chunk.artifactId, { ...chunk, parts: appendParts([], chunk.parts ?? []) });
    } else {
      appendParts((known.parts ??= []), chunk.parts ?? []);
    }
    const before = this.lines.at(-1);
    if (update.append && before?.kind === "artifact" && before.artifact?.artifactId === chunk.artifactId) {
      appendParts((before.artifact.parts ??= []), chunk.parts ?? []);
      before.last = sequence;
      before.complete = update.lastChunk;
      return;
    }
    this.lines.push({
      kind: "artifact",
      first: sequence,
      last: sequence,
      artifact: { ...chunk, name: chunk.name ?? known?.name, parts: appendParts([], chunk.parts ?? []) },
      replaces: known !== undefined && !update.append,
      complete: update.lastChunk,
    });
  }
}

/** Appends parts, joining text chunks to the preceding text. */
function appendParts(parts: Part[], added: readonly Part[]): Part[] {
  for (const part of added) {
    const before = parts.at(-1);
    if (part.text !== undefined && before?.text !== undefined && part.mediaType === before.mediaType) {
      before.text += part.text;
    } else {
      parts.push({ ...part });
    }
  }
  return parts;
}
