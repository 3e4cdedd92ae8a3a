// The fields of A2A 1.0 and dragoman.ops.v1 messages in JSON that the console reads.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export interface Part {
  text?: string;
  raw?: string; // base64
  url?: string;
  data?: Json;
  mediaType?: string;
  filename?: string;
}

export interface Message {
  messageId: string;
  role: "ROLE_USER" | "ROLE_AGENT";
  parts: Part[];
  taskId?: string;
  contextId?: string;
}

export interface Artifact {
  artifactId: string;
  name?: string;
  description?: string;
  parts?: Part[];
}

export interface Status {
  state: State;
  message?: Message;
  timestamp?: string;
}

export interface Task {
  id: string;
  contextId: string;
  status: Status;
  history?: Message[];
  artifacts?: Artifact[];
  metadata?: { [key: string]: Json };
}

/** What the agent, and the agents that it called, reported. */
export interface Usage {
  tokens?: number;
  cost?: number;
  delegated?: { tokens?: number; cost?: number };
}

export interface StatusUpdate {
  taskId: string;
  status: Status;
  metadata?: { [key: string]: Json };
}

export interface ArtifactUpdate {
  taskId: string;
  artifact: Artifact;
  append?: boolean;
  lastChunk?: boolean;
}

export interface StreamResponse {
  task?: Task;
  message?: Message;
  statusUpdate?: StatusUpdate;
  artifactUpdate?: ArtifactUpdate;
}

export type State = `TASK_STATE_${Uppercase<string>}`;

export const STATES = ["SUBMITTED", "WORKING", "INPUT_REQUIRED", "AUTH_REQUIRED", "COMPLETED", "FAILED", "CANCELED", "REJECTED"] as const;

/** A state as text: `input required`. */
export function stateText(state: string): string {
  return state.replace("TASK_STATE_", "").replace("_", " ").toLowerCase();
}

export function isTerminal(state: string): boolean {
  return /(COMPLETED|FAILED|CANCELED|REJECTED)$/.test(state);
}

/** Whether a task waits for its caller. */
export function isWaiting(state: string): boolean {
  return /(INPUT|AUTH)_REQUIRED$/.test(state);
}

export interface Agent {
  id: string;
  name: string;
  description: string;
  root: boolean;
  card: string;
}

export interface Skill {
  id: string;
  name: string;
  description: string;
  tags?: string[];
  examples?: string[];
}

export interface CardExtension {
  uri: string;
  description?: string;
  params?: { [key: string]: Json };
}

export interface Card {
  name: string;
  description: string;
  version: string;
  documentationUrl?: string;
  provider?: { organization: string; url: string };
  capabilities?: { streaming?: boolean; pushNotifications?: boolean; extensions?: CardExtension[] };
  defaultInputModes?: string[];
  defaultOutputModes?: string[];
  skills?: Skill[];
  supportedInterfaces?: { url: string; protocolBinding: string; protocolVersion?: string; tenant?: string }[];
}

/** The schemas that a card declares (`urn:dragoman:schemas:v1`), by skill; those of the agent have the key "". */
export function schemasOf(card: Card): { [skill: string]: { input?: { [key: string]: Json } } } {
  const params = card.capabilities?.extensions?.find(({ uri }) => uri === "urn:dragoman:schemas:v1")?.params;
  return (params ?? {}) as ReturnType<typeof schemasOf>;
}

// dragoman.ops.v1: absent fields are zero, empty or false; 64-bit numbers are strings.

export interface ListedTask {
  scope: string;
  agent: string;
  task: Task;
  principal?: string;
  created?: string;
  summary?: string;
  statusText?: string;
  tokens?: string;
  cost?: number;
  /** Why it failed; for operators, as `cause`: the same for equal failures. */
  failureText?: string;
  cause?: string;
}

/** Why a task, or an attempt of a step, failed. Of the attempts, only the last one has frames. */
export interface Failure {
  type?: string;
  text?: string;
  frames?: { file: string; line?: number; function?: string; code?: string }[];
  step?: string;
  causes?: string[];
  attempt?: number;
  /** When the attempt of a step ended. */
  ended?: string;
}

/** Tasks of an agent that failed in the same way; the failure is the last one. */
export interface FailureGroup {
  cause: string;
  agent: string;
  failure: Failure;
  count: string;
  countIsMinimum?: boolean;
  first: string;
  last: string;
  /** The task that failed last. */
  taskId: string;
  reruns?: FailureReruns;
}

/** When tasks of a group were rerun last, by whom, and how many in all. */
export interface FailureReruns {
  last?: string;
  principal?: string;
  count?: string;
}

export interface ListedTasks {
  tasks?: ListedTask[];
  total?: string;
  totalIsMinimum?: boolean;
  scopes?: string[];
  nextPageToken?: string;
  stateCounts?: { state: string; count?: string; isMinimum?: boolean }[];
}

export interface Explanation {
  taskId: string;
  agent: string;
  scope: string;
  principal: string;
  contextId: string;
  state: string;
  since?: string;
  dialect?: string;
  lastEvent?: string;
  queuedMessages?: string;
  attempt?: string;
  attemptsAllowed?: string;
  session?: string;
  sessionExpires?: string;
  here?: boolean;
  stopping?: boolean;
  subscribers?: string;
  ready?: boolean;
  freeSlots?: string;
  next?: string;
  worker?: string;
  tokens?: string;
  cost?: number;
  traceId?: string;
  /** Where the trace can be seen. */
  traceUrl?: string;
  /** When its current or last turn was claimed; while it is ready, since when. Milliseconds since the epoch. */
  turnAt?: string;
  /** The tasks that its agent gave to other agents. */
  delegated?: DelegatedTask[];
  failure?: Failure;
  cause?: string;
}

/** `ValueError: no price` */
export function failureTitle({ type, text }: Failure): string {
  return [type, text].filter(Boolean).join(": ") || "Failed without a text";
}

export interface DelegatedTask {
  taskId: string;
  agent: string;
  scope: string;
  state: string;
  /** Milliseconds since the epoch. */
  created: string;
  since: string;
}

export interface TaskStep {
  name: string;
  state: `TASK_STEP_STATE_${"RUNNING" | "DONE" | "FAILED" | "SLEEPING"}`;
  /** Absent for the current turn, or the last one of a task that has ended. */
  turn?: string;
  attempt?: number;
  started: string;
  ended?: string;
  wakeAt?: string;
  resultBytes?: string;
  error?: string;
  /** With contents. */
  details?: { input?: string; failures?: Failure[] };
  text?: StepText;
}

/** The result of a step for people. `omitted`: characters, of bytes their number, that are left out. */
export interface StepText {
  text?: string;
  mediaType?: string;
  omitted?: string;
}

export interface PushAttempt {
  sequence: number;
  time: string;
  status?: number;
  error?: string;
  milliseconds?: number;
}

export interface PushConfig {
  taskId: string;
  agent: string;
  principal: string;
  scope: string;
  id: string;
  url: string;
  dialect: string;
  state: string;
  reason?: string;
  created: string;
  delivered?: number;
  last?: number;
  failures?: number;
  failingSince?: string;
  nextAttempt?: string;
  delivering?: boolean;
  attemptCount?: number;
  attempts?: PushAttempt[];
}

export interface EncodedEvent {
  sequence: number;
  time?: string;
  v1Json: string;
  v03Json: string;
  v01Json: string[];
  text: string;
}

export interface WorkerAgent {
  agent: string;
  principal: string;
  seen: string;
  workers?: { name: string; peer: string; free?: number; running?: number; draining?: boolean }[];
}

/** A sum of figures. The first four fields are those by which the request groups. */
export interface UsageRow {
  day?: string;
  agent?: string;
  principal?: string;
  scope?: string;
  begun?: string;
  completed?: string;
  failed?: string;
  canceled?: string;
  rejected?: string;
  turns?: string;
  turnSeconds?: number;
  tokens?: string;
  cost?: number;
}

/** An agent as operators and viewers see it. */
export interface ServedAgent {
  id: string;
  name: string;
  description?: string;
  version?: string;
  root?: boolean;
  pause?: AgentPause;
}

/** Since when an agent begins no turns, and who paused it. */
export interface AgentPause {
  since: string;
  principal?: string;
  reason?: string;
}

/** Unfinished tasks in one state. */
export interface OpenTasks {
  count?: string;
  isMinimum?: boolean;
  oldest?: string;
}

export interface HourlyFigures {
  hour: string;
  begun?: string;
  completed?: string;
  failed?: string;
  canceled?: string;
  rejected?: string;
  turns?: string;
  turnSeconds?: number;
}

export interface AgentOverview {
  agent: string;
  queued?: OpenTasks;
  running?: OpenTasks;
  waiting?: OpenTasks;
  /** Hours in which nothing happened are left out. */
  hours?: HourlyFigures[];
  /** How long turns took that ended in these hours. */
  turns?: TurnTimes;
  /** How long turns that began in these hours were in the queue. */
  queue?: TurnTimes;
}

export interface TurnTimes {
  count?: string;
  meanSeconds?: number;
  p50Seconds?: number;
  p95Seconds?: number;
}

export interface Overview {
  agents?: AgentOverview[];
  firstHour: string;
}

/** One page of an action on many tasks, or a dry run. */
export interface BulkResponse {
  matched?: string;
  matchedIsMinimum?: boolean;
  changed?: string;
  skipped?: string;
  failures?: TaskFailure[];
  nextPageToken?: string;
}

export interface TaskFailure {
  taskId: string;
  agent: string;
  principal: string;
  scope: string;
  reason: string;
}
