// The view in the URL fragment: `#/tasks/TENANT/ID?tab=wire`. Every view can be linked to, and the browser's back and
// forward buttons work.

import { computed, signal } from "@preact/signals";
import { canViewAll } from "./sign_in";

export interface Route {
  path: string[];
  query: URLSearchParams;
}

function parseHash(): Route {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { path: (path ?? "").split("/").filter(Boolean).map(decodeSegment), query: new URLSearchParams(query ?? "") };
}

function decodeSegment(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const route = signal(parseHash());
export const section = computed(() => route.value.path[0] ?? (canViewAll.value ? "overview" : "tasks"));

addEventListener("hashchange", () => {
  route.value = parseHash();
});

export function href(path: readonly string[], query: Record<string, string> = {}): string {
  const parameters = Object.entries(query).filter(([, value]) => value);
  const text = new URLSearchParams(parameters).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export function navigate(path: readonly string[], query: Record<string, string> = {}): void {
  location.hash = href(path, query);
}

/** Shows another view in place of this one, without a history entry. */
export function replaceRoute(path: readonly string[], query: Record<string, string> = {}): void {
  history.replaceState(null, "", href(path, query));
  route.value = parseHash();
}

/** Changes query parameters without a history entry. */
export function updateQuery(changes: Record<string, string>): void {
  const all = { ...Object.fromEntries(route.value.query), ...changes };
  history.replaceState(null, "", href(route.value.path.length ? route.value.path : [section.value], all));
  route.value = parseHash();
}

/** The shown task, if any. */
export const selectedTask = computed(() => {
  const [first, tenant, id] = route.value.path;
  return first === "tasks" && tenant && id ? { tenant, id } : null;
});
