// An agent in a scope is addressed by its tenant: its id in the default scope, otherwise its resource name.

import { encodeSegment } from "./api";

export const DEFAULT_SCOPE = "default";

const AGENTS_SEGMENT = "/agents/";

export function tenantOf(scope: string, agent: string): string {
  return scope === DEFAULT_SCOPE ? agent : `${scope}${AGENTS_SEGMENT}${agent}`;
}

export function agentOf(tenant: string): string {
  return tenant.slice(tenant.lastIndexOf("/") + 1);
}

export function scopeOf(tenant: string): string {
  const end = tenant.lastIndexOf(AGENTS_SEGMENT);
  return end < 0 ? DEFAULT_SCOPE : tenant.slice(0, end);
}

/** The path of its calls. */
export function tenantPath(tenant: string): string {
  return tenant.split("/").map(encodeSegment).join("/");
}

/** The query of an operator's call for one of its tasks. */
export function tenantQuery(tenant: string): { agent: string; scope: string } {
  return { agent: agentOf(tenant), scope: scopeOf(tenant) };
}
