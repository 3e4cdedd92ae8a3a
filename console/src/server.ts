// The server that the page came from: its address, the user's credentials, one call.

import { signal } from "@preact/signals";

/** Where the API is: beside the page, whatever path a proxy may have put before both. */
export const base = new URL(".", document.baseURI);

const KEY = "dragoman.key";

/** The API key or token that calls carry. Kept for this tab, and gone with it. */
export const key = signal(sessionStorage.getItem(KEY) ?? "");

/** Why credentials are asked for; empty while calls are let in. */
export const asksForKey = signal("");

export function remember(value: string): void {
  key.value = value.trim();
  if (key.value) sessionStorage.setItem(KEY, key.value);
  else sessionStorage.removeItem(KEY);
  asksForKey.value = "";
}

/** What the server refused, in its own words. `status` is 0 when it could not be reached. */
export class Failure extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly reason = "",
  ) {
    super(message);
  }
}

export interface Ask {
  method?: string;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** The answer to a call. Throws Failure; AbortError when `signal` says so. */
export async function ask(path: string, { method, body, headers, signal }: Ask = {}): Promise<Response> {
  const all: Record<string, string> = { Accept: "application/json", "A2A-Version": "1.0", ...headers };
  if (key.value) all["Authorization"] = `Bearer ${key.value}`;
  if (body !== undefined) all["Content-Type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(new URL(path, base), {
      method: method ?? (body === undefined ? "GET" : "POST"),
      headers: all,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
      credentials: "omit",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Failure(0, "The server cannot be reached.");
  }
  if (response.ok) return response;
  throw await failure(response);
}

/** The JSON of the answer to a call. Throws as `ask` does. */
export async function call<T>(path: string, options?: Ask): Promise<T> {
  return (await (await ask(path, options)).json()) as T;
}

async function failure(response: Response): Promise<Failure> {
  let message = `${response.status} ${response.statusText}`;
  let reason = "";
  try {
    const { error } = await response.json();
    message = error.message ?? message;
    reason = error.details?.[0]?.reason ?? "";
  } catch {
    // no body of ours: a proxy's, perhaps
  }
  if (response.status === 401 && !isForOperators(response.url)) asksForKey.value = message;
  return new Failure(response.status, message, reason);
}

/** What is refused to others who are let in everywhere else: no reason to ask them who they are. */
function isForOperators(url: string): boolean {
  return ["operations/", "metrics"].some((path) => url.startsWith(new URL(path, base).href));
}

/** What went wrong, for people. */
export function words(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export const segment = encodeURIComponent;
