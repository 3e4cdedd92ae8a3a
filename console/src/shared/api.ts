// Calls the server of the page, with the user's credentials.

import { signal } from "@preact/signals";

/** The API's base URL: relative to the page, for proxies that add a path prefix. */
export const base = new URL(".", document.baseURI);

const KEY = "dragoman.key";

/** The API key or token of all calls. Stored until the tab is closed. */
export const key = signal(sessionStorage.getItem(KEY) ?? "");

/** Why credentials are requested; empty while calls are accepted. */
export const asksForKey = signal("");

/** The credentials that the server rejected last, and those for which the user then closed the dialog. */
let rejected: string | undefined;
let declined: string | undefined;

/** Ends the request for credentials. What the page reads does not request others for the same ones again. */
export function stopAsking(): void {
  declined = rejected;
  asksForKey.value = "";
}

export function remember(value: string): void {
  key.value = value.trim();
  if (key.value) sessionStorage.setItem(KEY, key.value);
  else sessionStorage.removeItem(KEY);
  rejected = undefined;
  stopAsking();
}

/** An error of the server, with its message. `status` is 0 if the server is unreachable. */
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

/** Returns the response to a call. Throws Failure; AbortError if `signal` is aborted. */
export async function ask(path: string, { method, body, headers, signal }: Ask = {}): Promise<Response> {
  const all: Record<string, string> = { Accept: "application/json", "A2A-Version": "1.0", ...headers };
  if (key.value && !all["Authorization"]) all["Authorization"] = `Bearer ${key.value}`;
  if (body !== undefined) all["Content-Type"] = "application/json";
  const used = key.value;
  const verb = method ?? (body === undefined ? "GET" : "POST");
  let response: Response;
  try {
    response = await fetch(new URL(path, base), {
      method: verb,
      headers: all,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
      credentials: "omit",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Failure(0, "The server is unreachable.");
  }
  if (response.ok) return response;
  const failed = await failure(response);
  if (failed.status === 401 && used === key.value && !isForOperators(response.url) && (verb !== "GET" || used !== declined)) {
    rejected = used;
    asksForKey.value = failed.message;
  }
  throw failed;
}

/** Returns the JSON response to a call. Throws as `ask` does. */
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
    // not the server's body, perhaps a proxy's
  }
  return new Failure(response.status, message, reason);
}

/** Rejections for lack of a grant, for which other credentials are not requested. */
function isForOperators(url: string): boolean {
  return ["operations/", "metrics"].some((path) => url.startsWith(new URL(path, base).href));
}

/** The error as text for users. */
export function words(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export const segment = encodeURIComponent;
