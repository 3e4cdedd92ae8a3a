// A task's push configurations, the progress of each receiver, and redelivery.

import { useSignal } from "@preact/signals";
import { ApiError, call, encodeSegment } from "../shared/api";
import { ErrorMessage, FactList, TimeSince } from "../shared/components";
import { formatIsoTime, formatTimeOfDay, plural } from "../shared/format";
import type { PushConfig } from "../shared/messages";
import { usePolling } from "../shared/polling";
import { tenantPath, tenantQuery } from "../shared/tenant";

/** Milliseconds between two calls while deliveries are pending. Each call is audited. */
const MIN_INTERVAL_MS = 3_000;
const MAX_INTERVAL_MS = 60_000;

interface PushConfigList {
  configs?: PushConfig[];
  /** Without the operator grant, only the configuration is shown, without delivery state. */
  own?: { id: string; url: string }[];
}

export function PushConfigs({ id, tenant, state }: { id: string; tenant: string; state: string }) {
  const { value, error, refresh } = usePolling((stop) => readPushConfigs(id, tenant, stop), pollIntervalMs, [id, tenant], [state]);
  const isEmpty = value && !value.configs?.length && !value.own?.length;
  return (
    <div class="pushes">
      <ErrorMessage error={error} />
      {isEmpty && <p class="empty">This task has no push configurations.</p>}
      {value?.own && value.own.length > 0 && (
        <>
          <p class="empty">Only operators can see the state of deliveries.</p>
          <ul>
            {value.own.map((config) => (
              <li key={config.id}>
                <code>{config.url}</code>
              </li>
            ))}
          </ul>
        </>
      )}
      {value?.configs?.map((config) => (
        <PushConfigDetails key={`${config.principal}/${config.scope}/${config.id}`} config={config} refresh={refresh} />
      ))}
    </div>
  );
}

export async function readPushConfigs(id: string, tenant: string, signal: AbortSignal): Promise<PushConfigList> {
  try {
    const query = new URLSearchParams(tenantQuery(tenant));
    return { configs: [], ...(await call<PushConfigList>(`operations/tasks/${encodeSegment(id)}/pushes?${query}`, { signal })) };
  } catch (error) {
    if (!(error instanceof ApiError) || ![401, 403].includes(error.status)) throw error;
    const path = `${tenantPath(tenant)}/tasks/${encodeSegment(id)}/pushNotificationConfigs`;
    return { own: (await call<{ configs: { id: string; url: string }[] }>(path, { signal })).configs };
  }
}

/** When to poll again: after the next attempt; never if everything was delivered or given up. */
export function pollIntervalMs(list: PushConfigList | undefined): number {
  const pending = list?.configs?.filter((config) => config.state === "PUSH_STATE_LIVE" && (config.delivered ?? 0) < (config.last ?? 0)) ?? [];
  if (pending.length === 0) return 0;
  const delays = pending.map((config) => (config.nextAttempt ? new Date(config.nextAttempt).getTime() - Date.now() + 1_000 : MIN_INTERVAL_MS));
  return Math.min(Math.max(Math.min(...delays), MIN_INTERVAL_MS), MAX_INTERVAL_MS);
}

const STATE_TEXTS: Record<string, string> = {
  PUSH_STATE_LIVE: "live",
  PUSH_STATE_COMPLETE: "done",
  PUSH_STATE_GIVEN_UP: "given up",
  PUSH_STATE_UNSUBSCRIBED: "ended by the receiver",
};

function PushConfigDetails({ config, refresh }: { config: PushConfig; refresh: () => void }) {
  const from = useSignal("");
  const confirmation = useSignal("");
  const error = useSignal<unknown>(undefined);
  const last = config.last ?? 0;
  const redeliver = async (event: SubmitEvent) => {
    event.preventDefault();
    error.value = undefined;
    const first = from.value ? Number(from.value) : undefined;
    try {
      await call(`operations/tasks/${encodeSegment(config.taskId)}:redeliver`, {
        body: { agent: config.agent, principal: config.principal, scope: config.scope, configId: config.id, from: first },
      });
      confirmation.value = first ? `Redelivering from event ${first}.` : "Redelivering the remaining events.";
      refresh();
    } catch (cause) {
      confirmation.value = "";
      error.value = cause;
    }
  };
  return (
    <section aria-label={`Push to ${config.url}`}>
      <h3>
        <span class="state" data-state={STATE_TEXTS[config.state] ?? ""}>
          {STATE_TEXTS[config.state] ?? config.state}
        </span>{" "}
        <code>{config.url}</code>
      </h3>
      <FactList
        items={[
          ["delivered", `${config.delivered ?? 0} of ${last}`],
          ["attempts", config.attemptCount ?? 0],
          ["failed attempts for the next event", config.failures],
          ["failing for", config.failingSince && <TimeSince time={config.failingSince} />],
          ["next attempt", config.delivering ? "now" : config.nextAttempt && formatTimeOfDay(config.nextAttempt)],
          ["reason", config.reason],
          ["version", `A2A ${config.dialect}`],
          ["registered", <TimeSince time={config.created} suffix=" ago" />],
          ["configuration", config.id],
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
        <span role="status">{confirmation.value}</span>
      </form>
      <ErrorMessage error={error.value} />
      {config.attempts && config.attempts.length > 0 && (
        <table>
          <caption>The last {plural(config.attempts.length, "attempt")}, newest first</caption>
          <thead>
            <tr>
              <th scope="col">Event</th>
              <th scope="col">Time</th>
              <th scope="col">Response</th>
              <th scope="col">Duration</th>
            </tr>
          </thead>
          <tbody>
            {config.attempts.map((attempt, index) => (
              <tr key={index}>
                <td>{attempt.sequence}</td>
                <td class="time" title={formatIsoTime(attempt.time)}>
                  {formatTimeOfDay(attempt.time)}
                </td>
                <td class={attempt.status && attempt.status < 300 ? undefined : "failed"}>{attempt.status ? `HTTP ${attempt.status}` : attempt.error}</td>
                <td>{attempt.milliseconds ?? 0} ms</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
