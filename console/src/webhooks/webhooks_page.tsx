// The receivers of push notifications with undelivered events: why, since when, and redelivery.

import { useSignal } from "@preact/signals";
import { useAsked } from "../shared/polling";
import { named } from "../shared/agents";
import { Empty, isRefusal, Page, Refusal } from "../shared/page";
import { Ago, Problem } from "../shared/components";
import { href } from "../shared/route";
import { count, lasting, now, plural, short, sum } from "../shared/format";
import { call, segment } from "../shared/api";
import { operates } from "../shared/sign_in";
import { tenantOf } from "../shared/tenant";
import type { PushConfig } from "../shared/messages";

/** Each call is audited. */
const EVERY = 30_000;
const MOST = 1000;
/** Tasks that are shown for one receiver. */
const SHOWN = 50;

/** The configurations with one host, which the server delivers to as one. */
interface Receiver {
  origin: string;
  configs: PushConfig[];
  /** Given up, with undelivered events: dead letters. */
  dead: PushConfig[];
  pending: number;
  /** Failed attempts since, in milliseconds; undefined while it works. */
  since: number | undefined;
  next: number | undefined;
  /** The reasons of failed attempts, the most frequent first. */
  reasons: string[];
}

export async function pushes(signal: AbortSignal): Promise<PushConfig[]> {
  return (await call<{ configs?: PushConfig[] }>(`operations/pushes?limit=${MOST}`, { signal })).configs ?? [];
}

/** Those that gave up first, then those that fail, the longest failing first. */
export function receivers(configs: readonly PushConfig[]): Receiver[] {
  const found = new Map<string, PushConfig[]>();
  for (const one of configs) found.set(originOf(one.url), [...(found.get(originOf(one.url)) ?? []), one]);
  const all = [...found].map(([origin, of]) => receiver(origin, of));
  const rank = (one: Receiver) => (one.dead.length ? 0 : one.since ? 1 : 2);
  return all.sort((one, other) => rank(one) - rank(other) || (one.since ?? 0) - (other.since ?? 0));
}

function receiver(origin: string, configs: PushConfig[]): Receiver {
  const times = (of: (one: PushConfig) => string | undefined) =>
    configs.flatMap((one) => (of(one) ? [new Date(of(one) as string).getTime()] : []));
  const reasons = new Map<string, number>();
  for (const { why } of configs) if (why) reasons.set(why, (reasons.get(why) ?? 0) + 1);
  const [since, next] = [times((one) => one.failingSince), times((one) => one.nextTry)];
  return {
    origin,
    configs,
    dead: configs.filter((one) => one.state === "PUSH_STATE_DEAD"),
    pending: sum(configs.map(left)),
    since: since.length ? Math.min(...since) : undefined,
    next: next.length ? Math.min(...next) : undefined,
    reasons: [...reasons].sort(([, one], [, other]) => other - one).map(([why]) => why),
  };
}

function originOf(url: string): string {
  return URL.canParse(url) ? new URL(url).origin : url;
}

function left(one: PushConfig): number {
  return Math.max(0, (one.last ?? 0) - (one.delivered ?? 0));
}

export function Webhooks() {
  const { value, error, again } = useAsked(pushes, EVERY, []);
  const all = receivers(value ?? []);
  return (
    <Page
      title="Webhooks"
      actions={
        <button type="button" onClick={again}>
          Refresh
        </button>
      }
    >
      {isRefusal(error) ? <Refusal error={error} what="webhooks" /> : <Problem error={error} />}
      {value && <p class="faint">{summary(all)}</p>}
      {value?.length === MOST && <p class="notice">These are the {count(MOST)} that have failed for the longest. There are more.</p>}
      {value && all.length === 0 && (
        <Empty title="Every event was delivered.">
          <p>
            Callers register a webhook with a message, or for a task. Receivers that fail, and events that wait for them, are listed
            here; deliveries of one task are on its Pushes tab.
          </p>
        </Empty>
      )}
      {all.map((one) => (
        <Shown key={one.origin} one={one} again={again} />
      ))}
    </Page>
  );
}

function summary(all: readonly Receiver[]): string {
  const failing = all.filter((one) => one.since || one.dead.length);
  if (all.length === 0) return "";
  const events = plural(sum(all.map((one) => one.pending)), "undelivered event");
  return failing.length ? `${plural(failing.length, "receiver")} failing, ${events}.` : `No receiver is failing. ${events}.`;
}

function Shown({ one, again }: { one: Receiver; again: () => void }) {
  const dead = one.dead.length > 0;
  const state = dead ? "given up" : one.since ? "failing" : "delivering";
  return (
    <section class="card" aria-label={one.origin} data-state={state}>
      <header>
        <h3>
          <code>{one.origin}</code>
        </h3>
        <span class="state" data-state={state}>
          {state}
        </span>
        <span class="space" />
        <Redeliver of={dead ? one.dead : one.configs} what={dead ? "dead letters" : "now"} again={again} />
      </header>
      {one.reasons.length > 0 && <p class="why">{one.reasons.slice(0, 3).join(" · ")}</p>}
      <dl class="figures-line">
        <div>
          <dt>failing for</dt>
          <dd>{one.since ? <Ago time={one.since} /> : "–"}</dd>
        </div>
        <div>
          <dt>events undelivered</dt>
          <dd>{count(one.pending)}</dd>
        </div>
        <div>
          <dt>tasks</dt>
          <dd>{count(one.configs.length)}</dd>
        </div>
        {dead && (
          <div>
            <dt>given up</dt>
            <dd>{count(one.dead.length)}</dd>
          </div>
        )}
        <div>
          <dt>next attempt</dt>
          <dd>{one.configs.some((config) => config.delivering) ? "now" : <Until time={one.next} />}</dd>
        </div>
      </dl>
      <details>
        <summary>{plural(one.configs.length, "task")}</summary>
        <Tasks configs={one.configs} again={again} />
      </details>
    </section>
  );
}

function Until({ time }: { time: number | undefined }) {
  if (!time) return <>–</>;
  return <>{time <= now.value ? "now" : `in ${lasting(time - now.value)}`}</>;
}

function Tasks({ configs, again }: { configs: readonly PushConfig[]; again: () => void }) {
  return (
    <div class="wide-table" tabIndex={0} role="region" aria-label="Tasks">
      <table>
        <thead>
          <tr>
            <th scope="col">Task</th>
            <th scope="col">Agent</th>
            <th scope="col">Principal</th>
            <th scope="col">Path</th>
            <th scope="col">Delivered</th>
            <th scope="col">Reason</th>
            <th scope="col">Next attempt</th>
            <th scope="col">
              <span class="hidden">Redeliver</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {configs.slice(0, SHOWN).map((one) => (
            <tr key={`${one.scope}/${one.principal}/${one.agent}/${one.taskId}/${one.id}`}>
              <td>
                <a href={href(["tasks", tenantOf(one.scope, one.agent), one.taskId], { tab: "pushes" })} title={one.taskId}>
                  <code>{short(one.taskId)}</code>
                </a>
              </td>
              <td>{named(one.agent)}</td>
              <td>{one.principal}</td>
              <td>
                <code>{one.url.slice(originOf(one.url).length) || "/"}</code>
              </td>
              <td>
                {one.delivered ?? 0} of {one.last ?? 0}
              </td>
              <td>{one.why}</td>
              <td>
                {one.state === "PUSH_STATE_DEAD" ? "given up" : <Until time={one.nextTry ? new Date(one.nextTry).getTime() : undefined} />}
              </td>
              <td>
                <Redeliver of={[one]} what="" again={again} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {configs.length > SHOWN && <p class="faint">and {count(configs.length - SHOWN)} more</p>}
    </div>
  );
}

/** Restarts the deliveries of all undelivered events of these configurations, one call each, until one fails. */
function Redeliver({ of, what, again }: { of: readonly PushConfig[]; what: string; again: () => void }) {
  const done = useSignal<number | undefined>(undefined);
  const failed = useSignal<unknown>(undefined);
  if (!operates.value) return null;
  const run = async () => {
    failed.value = undefined;
    try {
      for (const [index, one] of of.entries()) {
        done.value = index;
        await call(`operations/tasks/${segment(one.taskId)}:redeliver`, {
          body: { agent: one.agent, principal: one.principal, scope: one.scope, configId: one.id },
        });
      }
    } catch (error) {
      failed.value = error;
    }
    done.value = undefined;
    again();
  };
  return (
    <>
      <button type="button" disabled={done.value !== undefined} onClick={() => void run()}>
        {done.value !== undefined && of.length > 1 ? `${done.value} of ${of.length}` : what ? `Redeliver ${what}` : "Redeliver"}
      </button>
      <Problem error={failed.value} />
    </>
  );
}
