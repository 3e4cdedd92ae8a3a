// What the checks want of a generated client. `connect` of each program returns it.

export interface Task {
  id: string;
  contextId?: string;
  status: { state: string };
  artifacts?: { parts: { text?: string }[] }[];
}

export interface Calls {
  send(text: string): Promise<Task>;
  get(task: string): Promise<Task>;
  list(contextId: string | undefined): Promise<Task[]>;
  /** The status and the reason of the error for a task that does not exist. */
  refusal(task: string): Promise<[number, string | undefined]>;
}
