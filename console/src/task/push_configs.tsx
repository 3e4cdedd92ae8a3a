// A task's push configurations, the progress of each receiver, and redelivery.

import { useSignal } from "@preact/signals";
import { useAsked } from "../shared/polling";
import { Ago, Facts, Problem } from "../shared/components";
import { clock, full, plural } from "../shared/format";
import { call, Failure, segment } from "../shared/api";
import { pathOf, selection } from "../shared/tenant";
import type { PushConfig } from "../shared/messages";

/** Milliseconds between two calls while deliveries are pending. Each call is audited. */
const SOON = 3_000;
const LATE = 60_000;

interface Configs {
  configs?: PushConfig[];
  /** Without the operator grant, only the configuration is shown, without delivery state. */
  own?: { id: string; url: string }[];
}

export function Pushes({ id, tenant, state }: { id: string; tenant: string; state: string }) {
  const { value, error, again } = useAsked((stop) => configsOf(id, tenant, stop), nextDelivery, [id, tenant], [state]);
  const empty = value && !value.configs?.length && !value.own?.length;
  return (
    <div class="pushes">
      <Problem error={error} />
      {empty && <p class="empty">This task has no push configurations.</p>}
      {value?.own && value.own.length > 0 && (
        <>
          <p class="empty">Only operators can see the state of deliveries.</p>
          <ul>
            {value.own.map((one) => (
              <li key={one.id}>
                <code>{one.url}</code>
              </li>
            ))}
          </ul>
        </>
      )}
      {value?.configs?.map((one) => (
        <Config key={`${one.principal}/${one.scope}/${one.id}`} one={one} again={again} />
      ))}
    </div>
  );
}

export async function configsOf(id: string, tenant: string, signal: AbortSignal): Promise<Configs> {
  try {
    const query = new URLSearchParams(selection(tenant));
    return { configs: [], ...(await call<Configs>(`operations/tasks/${segment(id)}/pushes?${query}`, { signal })) };
  } catch (error) {
    if (!(error instanceof Failure) || ![401, 403].includes(error.status)) throw error;
    const path = `${pathOf(tenant)}/tasks/${segment(id)}/pushNotificationConfigs`;
    return { own: (await call<{ configs: { id: string; url: string }[] }>(path, { signal })).configs };
  }
}

/** When to poll again: after the next attempt; never if everything was delivered or given up. */
export function nextDelivery(now: Configs | undefined): number {
  const left = now?.configs?.filter((one) => one.state === "PUSH_STATE_LIVE" && (one.delivered ?? 0) < (one.last ?? 0)) ?? [];
  if (left.length === 0) return 0;
  const tries = left.map((one) => (one.nextTry ? new Date(one.nextTry).getTime() - Date.now() + 1_000 : SOON));
  return Math.min(Math.max(Math.min(...tries), SOON), LATE);
}

const STATES: Record<string, string> = {
  PUSH_STATE_LIVE: "live",
  PUSH_STATE_DONE: "done",
  PUSH_STATE_DEAD: "given up",
  PUSH_STATE_ENDED: "ended by the receiver",
};

function Config({ one, again }: { one: PushConfig; again: () => void }) {
  const from = useSignal("");
  const said = useSignal("");
  const error = useSignal<unknown>(undefined);
  const last = one.last ?? 0;
  const redeliver = async (event: SubmitEvent) => {
    event.preventDefault();
    error.value = undefined;
    const first = from.value ? Number(from.value) : undefined;
    try {
      await call(`operations/tasks/${segment(one.taskId)}:redeliver`, {
        body: { agent: one.agent, principal: one.principal, scope: one.scope, configId: one.id, from: first },
      });
      said.value = first ? `Redelivering from event ${first}.` : "Redelivering the remaining events.";
      again();
    } catch (failed) {
      said.value = "";
      error.value = failed;
    }
  };
  return (
    <section aria-label={`Push to ${one.url}`}>
      <h3>
        <span class="state" data-state={STATES[one.state] ?? ""}>
          {STATES[one.state] ?? one.state}
        </span>{" "}
        <code>{one.url}</code>
      </h3>
      <Facts
        of={[
          ["delivered", `${one.delivered ?? 0} of ${last}`],
          ["attempts", one.tries ?? 0],
          ["failed attempts for the next event", one.failures],
          ["failing for", one.failingSince && <Ago time={one.failingSince} />],
          ["next attempt", one.delivering ? "now" : one.nextTry && clock(one.nextTry)],
          ["reason", one.why],
          ["version", `A2A ${one.dialect}`],
          ["registered", <Ago time={one.created} after=" ago" />],
          ["configuration", one.id],
        ]}
      />
      <form class="redeliver" onSubmit={(event) => void redeliver(event)}>
        <label>
          From event{" "}
          <input
            type="number"
            min={1}
            max={last}
            value={from.value}
            placeholder="remaining"
            onInput={(event) => (from.value = event.currentTarget.value)}
          />
        </label>
        <button type="submit">Redeliver</button>
        <span role="status">{said.value}</span>
      </form>
      <Problem error={error.value} />
      {one.attempts && one.attempts.length > 0 && (
        <table>
          <caption>The last {plural(one.attempts.length, "attempt")}, newest first</caption>
          <thead>
            <tr>
              <th scope="col">Event</th>
              <th scope="col">Time</th>
              <th scope="col">Response</th>
              <th scope="col">Duration</th>
            </tr>
          </thead>
          <tbody>
            {one.attempts.map((attempt, index) => (
              <tr key={index}>
                <td>{attempt.sequence}</td>
                <td title={full(attempt.time)}>{clock(attempt.time)}</td>
                <td>{attempt.status ? `HTTP ${attempt.status}` : attempt.error}</td>
                <td>{attempt.milliseconds ?? 0} ms</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
