// Calls the server of the page, with the user's credentials.

import { signal } from "@preact/signals";

/** The API's base URL: relative to the page, for proxies that add a path prefix. */
export const baseUrl = new URL(".", document.baseURI);

const STORAGE_KEY = "dragoman.key";

/** The API key or token of all calls. Stored until the tab is closed. */
export const accessToken = signal(sessionStorage.getItem(STORAGE_KEY) ?? "");

/** Set while the page asks for credentials in place of its views; with a reason, if there is something to explain. */
export const signInRequest = signal<{ reason: string } | undefined>(undefined);

export function storeAccessToken(value: string): void {
  accessToken.value = value.trim();
  if (accessToken.value) sessionStorage.setItem(STORAGE_KEY, accessToken.value);
  else sessionStorage.removeItem(STORAGE_KEY);
  signInRequest.value = undefined;
}

/** An error of the server, with its message. `status` is 0 if the server is unreachable. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly reason = "",
  ) {
    super(message);
  }
}

export interface RequestOptions {
  method?: string;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** Returns the response to a call. Throws ApiError; AbortError if `signal` is aborted. */
export async function request(path: string, { method, body, headers, signal }: RequestOptions = {}): Promise<Response> {
  const allHeaders: Record<string, string> = { Accept: "application/json", "A2A-Version": "1.0", ...headers };
  if (accessToken.value && !allHeaders["Authorization"]) allHeaders["Authorization"] = `Bearer ${accessToken.value}`;
  if (body !== undefined) allHeaders["Content-Type"] = "application/json";
  const usedToken = accessToken.value;
  const verb = method ?? (body === undefined ? "GET" : "POST");
  let response: Response;
  try {
    response = await fetch(new URL(path, baseUrl), {
      method: verb,
      headers: allHeaders,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
      credentials: "omit",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "The server is unreachable.");
  }
  if (response.ok) return response;
  const error = await readError(response);
  if (error.status === 401 && usedToken === accessToken.value && !headers?.["Authorization"] && !isOperatorPath(response.url)) {
    signInRequest.value ??= { reason: usedToken ? "Your key is no longer valid. Sign in again." : "" };
  }
  throw error;
}

/** Returns the JSON response to a call. Throws as `request` does. */
export async function call<T>(path: string, options?: RequestOptions): Promise<T> {
  const response = await request(path, options);
  try {
    return (await response.json()) as T;
  } catch (error) {
    if (options?.signal?.aborted) throw error;
    throw new ApiError(response.status, "The answer is not JSON. A proxy in front of the server may have sent it.");
  }
}

async function readError(response: Response): Promise<ApiError> {
  let message = `${response.status} ${response.statusText}`;
  let reason = "";
  try {
    const { error } = await response.json();
    message = error.message ?? message;
    reason = error.details?.[0]?.reason ?? "";
  } catch {
    // not the server's body, perhaps a proxy's
  }
  return new ApiError(response.status, message, reason);
}

/** Rejections for lack of a grant, for which other credentials are not requested. */
function isOperatorPath(url: string): boolean {
  return ["operations/", "metrics"].some((path) => url.startsWith(new URL(path, baseUrl).href));
}

/** The error as text for users. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export const encodeSegment = encodeURIComponent;

/** A unique idempotency key. `crypto.randomUUID` exists only in secure contexts. */
export function newIdempotencyKey(): string {
  const random = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
