// The receivers of push notifications with undelivered events: why, since when, and redelivery.

import { useSignal } from "@preact/signals";
import { agentName } from "../shared/agents";
import { call, encodeSegment } from "../shared/api";
import { ErrorMessage, TimeSince } from "../shared/components";
import { formatNumber, formatCoarseDuration, now, plural, shortId, sum } from "../shared/format";
import type { PushConfig } from "../shared/messages";
import { AccessError, EmptyState, isAccessError, Page } from "../shared/page";
import { usePolling } from "../shared/polling";
import { href } from "../shared/route";
import { canOperate } from "../shared/sign_in";
import { tenantOf } from "../shared/tenant";

/** Each call is audited. */
const POLL_INTERVAL_MS = 30_000;
const MAX_CONFIGS = 1000;
/** Tasks that are shown for one receiver. */
const MAX_SHOWN_TASKS = 50;

/** The configurations with one host, which the server delivers to as one. */
interface Receiver {
  origin: string;
  configs: PushConfig[];
  /** Given up, with undelivered events: dead letters. */
  givenUp: PushConfig[];
  pending: number;
  /** Failed attempts since, in milliseconds; undefined while it works. */
  failingSince: number | undefined;
  nextAttempt: number | undefined;
  /** The reasons of failed attempts without their numbers, the most frequent first. */
  reasons: string[];
}

export async function readPushConfigs(signal: AbortSignal): Promise<PushConfig[]> {
  return (await call<{ configs?: PushConfig[] }>(`operations/pushes?limit=${MAX_CONFIGS}`, { signal })).configs ?? [];
}

/** Those that gave up first, then those that fail, the longest failing first. */
export function groupByReceiver(configs: readonly PushConfig[]): Receiver[] {
  const groups = new Map<string, PushConfig[]>();
  for (const config of configs) groups.set(originOf(config.url), [...(groups.get(originOf(config.url)) ?? []), config]);
  const all = [...groups].map(([origin, of]) => toReceiver(origin, of));
  const rank = (receiver: Receiver) => (receiver.givenUp.length ? 0 : receiver.failingSince ? 1 : 2);
  return all.sort((receiver, other) => rank(receiver) - rank(other) || (receiver.failingSince ?? 0) - (other.failingSince ?? 0));
}

function toReceiver(origin: string, configs: PushConfig[]): Receiver {
  const times = (of: (config: PushConfig) => string | undefined) =>
    configs.flatMap((config) => (of(config) ? [new Date(of(config) as string).getTime()] : []));
  const reasons = new Map<string, number>();
  for (const { reason } of configs) {
    const cause = reason?.replace(/^given up after \d+ attempts?: /, "");
    if (cause) reasons.set(cause, (reasons.get(cause) ?? 0) + 1);
  }
  const [failingSince, nextAttempt] = [times((config) => config.failingSince), times((config) => config.nextAttempt)];
  return {
    origin,
    configs,
    givenUp: configs.filter((config) => config.state === "PUSH_STATE_GIVEN_UP"),
    pending: sum(configs.map(undelivered)),
    failingSince: failingSince.length ? Math.min(...failingSince) : undefined,
    nextAttempt: nextAttempt.length ? Math.min(...nextAttempt) : undefined,
    reasons: [...reasons].sort(([, one], [, other]) => other - one).map(([reason]) => reason),
  };
}

function originOf(url: string): string {
  return URL.canParse(url) ? new URL(url).origin : url;
}

function undelivered(config: PushConfig): number {
  return Math.max(0, (config.last ?? 0) - (config.delivered ?? 0));
}

export function WebhooksPage() {
  const { value, error, refresh } = usePolling(readPushConfigs, POLL_INTERVAL_MS, []);
  const all = groupByReceiver(value ?? []);
  return (
    <Page
      title="Webhooks"
      actions={
        <button type="button" onClick={refresh}>
          Refresh
        </button>
      }
    >
      {isAccessError(error) ? <AccessError error={error} subject="webhooks" /> : <ErrorMessage error={error} />}
      {value && <p class="faint">{summary(all)}</p>}
      {value?.length === MAX_CONFIGS && (
        <p class="notice">These are the {formatNumber(MAX_CONFIGS)} that have failed for the longest. There are more.</p>
      )}
      {value && all.length === 0 && (
        <EmptyState title="No event waits for a webhook.">
          <p>
            Callers register a webhook with a message, or for a task. Receivers that fail, and events that wait for them, are listed here; deliveries
            of one task are on its Pushes tab.
          </p>
        </EmptyState>
      )}
      {all.map((receiver) => (
        <ReceiverCard key={receiver.origin} receiver={receiver} refresh={refresh} />
      ))}
    </Page>
  );
}

function summary(all: readonly Receiver[]): string {
  const failing = all.filter((receiver) => receiver.failingSince || receiver.givenUp.length);
  if (all.length === 0) return "";
  const events = plural(sum(all.map((receiver) => receiver.pending)), "undelivered event");
  return failing.length ? `${plural(failing.length, "receiver")} failing, ${events}.` : `No receiver is failing. ${events}.`;
}

function ReceiverCard({ receiver, refresh }: { receiver: Receiver; refresh: () => void }) {
  const givenUp = receiver.givenUp.length > 0;
  const state = givenUp ? "given up" : receiver.failingSince ? "failing" : "delivering";
  return (
    <section class="card" aria-label={receiver.origin} data-state={state}>
      <header>
        <h3>
          <code>{receiver.origin}</code>
        </h3>
        <span class="state" data-state={state}>
          {state}
        </span>
        <span class="space" />
        <RedeliverButton configs={givenUp ? receiver.givenUp : receiver.configs} label={givenUp ? "dead letters" : "now"} refresh={refresh} />
      </header>
      {receiver.reasons.length > 0 && <p class="why">{receiver.reasons.slice(0, 3).join(" · ")}</p>}
      <dl class="figures-line">
        <div>
          <dt>failing for</dt>
          <dd>{receiver.failingSince ? <TimeSince time={receiver.failingSince} /> : "–"}</dd>
        </div>
        <div>
          <dt>events undelivered</dt>
          <dd>{formatNumber(receiver.pending)}</dd>
        </div>
        <div>
          <dt>{receiver.configs.length === 1 ? "task" : "tasks"}</dt>
          <dd>{formatNumber(receiver.configs.length)}</dd>
        </div>
        {givenUp && (
          <div>
            <dt>given up</dt>
            <dd>{formatNumber(receiver.givenUp.length)}</dd>
          </div>
        )}
        <div>
          <dt>next attempt</dt>
          <dd>{receiver.configs.some((config) => config.delivering) ? "now" : <TimeUntil time={receiver.nextAttempt} />}</dd>
        </div>
      </dl>
      <details>
        <summary>{plural(receiver.configs.length, "task")}</summary>
        <TaskTable configs={receiver.configs} refresh={refresh} />
      </details>
    </section>
  );
}

function TimeUntil({ time }: { time: number | undefined }) {
  if (!time) return <>–</>;
  return <>{time <= now.value ? "now" : `in ${formatCoarseDuration(time - now.value)}`}</>;
}

function TaskTable({ configs, refresh }: { configs: readonly PushConfig[]; refresh: () => void }) {
  return (
    <div class="wide-table" tabIndex={0} role="region" aria-label="Tasks">
      {/* The roles are those of the elements. Some browsers forget them in the narrow layout. */}
      <table role="table" class="stacked">
        <thead role="rowgroup">
          <tr role="row">
            <th scope="col" role="columnheader">Task</th>
            <th scope="col" role="columnheader">Agent</th>
            <th scope="col" role="columnheader">Principal</th>
            <th scope="col" role="columnheader">Path</th>
            <th scope="col" role="columnheader">Delivered</th>
            <th scope="col" role="columnheader">Reason</th>
            <th scope="col" role="columnheader">Next attempt</th>
            <th scope="col" role="columnheader">
              <span class="hidden">Redeliver</span>
            </th>
          </tr>
        </thead>
        <tbody role="rowgroup">
          {configs.slice(0, MAX_SHOWN_TASKS).map((config) => (
            <tr role="row" key={`${config.scope}/${config.principal}/${config.agent}/${config.taskId}/${config.id}`}>
              <td role="cell" data-label="Task">
                <a href={href(["tasks", tenantOf(config.scope, config.agent), config.taskId], { tab: "pushes" })} title={config.taskId}>
                  <code>{shortId(config.taskId)}</code>
                </a>
              </td>
              <td role="cell" data-label="Agent">{agentName(config.agent)}</td>
              <td role="cell" data-label="Principal">{config.principal}</td>
              <td role="cell" data-label="Path">
                <code>{config.url.slice(originOf(config.url).length) || "/"}</code>
              </td>
              <td role="cell" data-label="Delivered">
                {config.delivered ?? 0} of {config.last ?? 0}
              </td>
              <td role="cell" data-label="Reason">{config.reason}</td>
              <td role="cell" data-label="Next attempt">
                {config.state === "PUSH_STATE_GIVEN_UP" ? (
                  "given up"
                ) : (
                  <TimeUntil time={config.nextAttempt ? new Date(config.nextAttempt).getTime() : undefined} />
                )}
              </td>
              <td role="cell">
                <RedeliverButton configs={[config]} label="" refresh={refresh} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {configs.length > MAX_SHOWN_TASKS && <p class="faint">and {formatNumber(configs.length - MAX_SHOWN_TASKS)} more</p>}
    </div>
  );
}

/** Restarts the deliveries of all undelivered events of these configurations, one call each, until one fails. */
function RedeliverButton({ configs, label, refresh }: { configs: readonly PushConfig[]; label: string; refresh: () => void }) {
  const done = useSignal<number | undefined>(undefined);
  const failure = useSignal<unknown>(undefined);
  if (!canOperate.value) return null;
  const run = async () => {
    failure.value = undefined;
    try {
      for (const [index, config] of configs.entries()) {
        done.value = index;
        await call(`operations/tasks/${encodeSegment(config.taskId)}:redeliver`, {
          body: { agent: config.agent, principal: config.principal, scope: config.scope, configId: config.id },
        });
      }
    } catch (error) {
      failure.value = error;
    }
    done.value = undefined;
    refresh();
  };
  return (
    <>
      <button type="button" disabled={done.value !== undefined} onClick={() => void run()}>
        {done.value !== undefined && configs.length > 1 ? `${done.value} of ${configs.length}` : label ? `Redeliver ${label}` : "Redeliver"}
      </button>
      <ErrorMessage error={failure.value} />
    </>
  );
}
