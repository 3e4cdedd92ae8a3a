// Sign-in by OpenID Connect: authorization code with PKCE (RFC 7636). The server exchanges the code for a token.

import { batch, computed, signal } from "@preact/signals";
import { accessToken, ApiError, call, errorText, signInRequest, storeAccessToken } from "./api";

export interface Provider {
  issuer: string;
  name: string;
  authorizationUrl: string;
  clientId: string;
  scope: string;
}

export interface Caller {
  principal: string;
  grants: string[];
}

/** Where people can sign in; null before the server has answered. */
export const providers = signal<Provider[] | null>(null);

/** The authenticated user; null if unknown, or without credentials. */
export const caller = signal<Caller | null>(null);

/** Whether the server asks callers who they are; also true while that is unknown. */
export const authenticates = signal(true);

/** Whether the user may view tasks of other principals; also true while that is unknown. */
export const canViewAll = computed(
  () => caller.value?.grants.some((grant) => ["operator", "viewer"].includes(grant)) ?? (!authenticates.value || accessToken.value !== ""),
);

/** Whether the user may change tasks of other principals; also true while that is unknown. */
export const canOperate = computed(() => caller.value?.grants.includes("operator") ?? true);

const STORAGE_KEY = "dragoman.sign-in";

interface PendingSignIn {
  state: string;
  verifier: string;
  issuer: string;
  hash: string;
}

/** The URL to which issuers send the user back: the console's, without query and fragment. */
const redirectUri = () => location.origin + location.pathname;

/** Shows the page that asks for credentials. */
export function requestSignIn(reason = ""): void {
  signInRequest.value = { reason };
}

/** Begins a sign-in: leaves the page. */
export async function signIn(provider: Provider): Promise<void> {
  const pending = { state: randomText(), verifier: randomText(), issuer: provider.issuer, hash: location.hash };
  sessionStorage.setItem(STORAGE_KEY, JSON.stringify(pending));
  const url = new URL(provider.authorizationUrl);
  const query = {
    response_type: "code",
    client_id: provider.clientId,
    redirect_uri: redirectUri(),
    scope: provider.scope,
    state: pending.state,
    code_challenge: await codeChallenge(pending.verifier),
    code_challenge_method: "S256",
  };
  for (const [name, token] of Object.entries(query)) url.searchParams.set(name, token);
  location.assign(url);
}

/** Ends a sign-in, if the page was opened by one. Removes the code from the address. */
export async function finishSignIn(): Promise<void> {
  const query = new URLSearchParams(location.search);
  if (!query.has("state") || !(query.has("code") || query.has("error"))) return;
  const pending = JSON.parse(sessionStorage.getItem(STORAGE_KEY) ?? "null") as PendingSignIn | null;
  sessionStorage.removeItem(STORAGE_KEY);
  history.replaceState(null, "", redirectUri() + (pending?.hash ?? ""));
  if (pending === null || query.get("state") !== pending.state) {
    requestSignIn("This sign-in was not begun in this tab. Sign in again.");
  } else if (query.has("error")) {
    requestSignIn(`The sign-in failed: ${query.get("error_description") ?? query.get("error")}`);
  } else {
    const { issuer, verifier } = pending;
    const body = { issuer, code: query.get("code"), codeVerifier: verifier, redirectUri: redirectUri() };
    try {
      storeAccessToken((await call<{ token: string }>("console/token", { body })).token);
    } catch (error) {
      requestSignIn(errorText(error));
    }
  }
}

/** Uses a key or token if the server accepts it. Throws ApiError. */
export async function signInWithToken(token: string): Promise<void> {
  const accepted = await call<Caller>("console/caller", { headers: { Authorization: `Bearer ${token.trim()}` } });
  batch(() => {
    caller.value = accepted; // with the key, because views depend on both
    storeAccessToken(token);
  });
}

/** Reads the authenticated user from the server. A server that requires credentials rejects a call without them. */
export async function loadCaller(): Promise<void> {
  try {
    const identity = await call<Caller>("console/caller");
    caller.value = accessToken.value && identity?.grants ? identity : null;
  } catch (error) {
    caller.value = null;
    if (!(error instanceof ApiError)) throw error;
  }
}

/** Reads the sign-in providers from the server. Without a response only the API key remains. */
export async function loadProviders(): Promise<void> {
  try {
    const { providers: known, authentication } = await call<{ providers: Provider[]; authentication: boolean }>("console/sign-in");
    providers.value = known;
    authenticates.value = authentication;
  } catch {
    providers.value = [];
  }
}

export function signOut(): void {
  storeAccessToken("");
  caller.value = null;
  location.reload(); // nothing of the former user stays in the page
}

function randomText(): string {
  return base64Url(crypto.getRandomValues(new Uint8Array(32)));
}

async function codeChallenge(verifier: string): Promise<string> {
  if (!crypto.subtle) throw new Error("Sign-in needs HTTPS, or a server on this machine.");
  return base64Url(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier))));
}

function base64Url(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
}
