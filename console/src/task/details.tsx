// The side panel of a task: state, agent, usage, times, ids and scope.

import { signal } from "@preact/signals";
import { agentName } from "../shared/agents";
import { CopyableValue, FactList, StateLabel, TimeSince } from "../shared/components";
import { formatCoarseDuration, formatDuration, formatIsoTime, formatNumber, now } from "../shared/format";
import { isTerminal } from "../shared/messages";
import { href } from "../shared/route";
import { agentOf, DEFAULT_SCOPE, scopeOf } from "../shared/tenant";
import { creationTime } from "../tasks/listing";
import type { TaskProjection } from "./projection";

const STORAGE_KEY = "dragoman.details";

/** Where the panel is beside the content, it is as the user left it; elsewhere it would cover the content at first. */
const isBeside = matchMedia("(min-width: 1280px)").matches;
const isWide = matchMedia("(min-width: 1600px)").matches;

export const detailsAreOpen = signal(isBeside && (localStorage.getItem(STORAGE_KEY) ?? (isWide ? "open" : "closed")) === "open");

export function toggleDetails(): void {
  detailsAreOpen.value = !detailsAreOpen.value;
  if (isBeside) localStorage.setItem(STORAGE_KEY, detailsAreOpen.value ? "open" : "closed");
}

/** `took 3.4 s` for a task that has ended, the time since its creation for others; empty if that is not known. */
export function durationText(id: string, projection: TaskProjection): string {
  const ended = isTerminal(projection.state);
  const startedAt = creationTime(id) || new Date(projection.lines[0]?.time ?? 0).getTime();
  const changedAt = new Date(projection.stateSince || 0).getTime();
  const elapsedMs = startedAt && changedAt ? Math.max(0, (ended ? changedAt : now.value) - startedAt) : 0;
  if (elapsedMs === 0 || (!ended && elapsedMs < 1000)) return "";
  return ended ? `took ${formatDuration(elapsedMs)}` : formatCoarseDuration(elapsedMs);
}

interface DetailsProps {
  tenant: string;
  id: string;
  projection: TaskProjection;
  /** The owner, if it is not the caller. */
  principal: string;
  version: number;
}

export function Details({ tenant, id, projection, principal }: DetailsProps) {
  const ended = isTerminal(projection.state);
  const scope = scopeOf(tenant);
  const { context } = projection;
  const { tokens, cost } = projection.usage ?? {};
  const created = creationTime(id);
  return (
    <aside class="details" id="details" aria-label="Details">
      <FactList
        items={[
          ["State", <StateLabel state={projection.state} />],
          ["Agent", <a href={href(["agents", agentOf(tenant)])}>{agentName(tenant)}</a>],
          ["Principal", principal],
          ["Duration", durationText(id, projection).replace("took ", "")],
          ["Tokens", tokens && formatNumber(tokens)],
          ["Cost", cost && <span title="in the currency of the agent">{Number(cost.toPrecision(3))}</span>],
          ["Created", created && <time dateTime={formatIsoTime(created)}>{formatIsoTime(created).replace("T", " ").slice(0, 19)} UTC</time>],
          [
            ended ? "Ended" : "Last event",
            <TimeSince time={ended ? new Date(projection.stateSince || 0).getTime() : Math.min(projection.lastEventTime, now.value)} suffix=" ago" />,
          ],
          ["Task", <CopyableValue value={id} name="the task id" />],
          [
            "Context",
            context && (
              <CopyableValue value={context} name="the context id">
                <a href={href(["tasks"], { context })}>
                  <code>{context}</code>
                </a>
              </CopyableValue>
            ),
          ],
          ["Scope", scope !== DEFAULT_SCOPE && <a href={href(["tasks"], { scope })}>{scope}</a>],
        ]}
      />
    </aside>
  );
}
