// The view in the URL fragment: `#/tasks/TENANT/ID?tab=wire`. Every view can be linked to, and the browser's back and
// forward buttons work.

import { computed, signal } from "@preact/signals";
import { seesAll } from "./sign_in";

export interface Route {
  path: string[];
  query: URLSearchParams;
}

function read(): Route {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { path: (path ?? "").split("/").filter(Boolean).map(decode), query: new URLSearchParams(query ?? "") };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const route = signal(read());
export const place = computed(() => route.value.path[0] ?? (seesAll.value ? "overview" : "tasks"));

addEventListener("hashchange", () => {
  route.value = read();
});

export function href(path: readonly string[], query: Record<string, string> = {}): string {
  const given = Object.entries(query).filter(([, value]) => value);
  const text = new URLSearchParams(given).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export function go(path: readonly string[], query: Record<string, string> = {}): void {
  location.hash = href(path, query);
}

/** Shows another view in place of this one, without a history entry. */
export function replace(path: readonly string[]): void {
  history.replaceState(null, "", href(path));
  route.value = read();
}

/** Changes query parameters without a history entry. */
export function refine(changes: Record<string, string>): void {
  const all = { ...Object.fromEntries(route.value.query), ...changes };
  history.replaceState(null, "", href(route.value.path.length ? route.value.path : [place.value], all));
  route.value = read();
}

/** The shown task, if any. */
export const chosen = computed(() => {
  const [first, tenant, id] = route.value.path;
  return first === "tasks" && tenant && id ? { tenant, id } : null;
});
