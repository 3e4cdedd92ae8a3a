// Who is told of a task by push, how far each receiver is, and telling it again.

import { useSignal } from "@preact/signals";
import { useAsked } from "./asking";
import { Ago, Facts, Problem } from "./pieces";
import { clock, full, plural } from "./say";
import { call, Failure, segment } from "./server";
import type { PushConfig } from "./wire";

/** Milliseconds between two looks while something is to be delivered. Who looks stands in the audit log each time. */
const SOON = 3_000;
const LATE = 60_000;

interface Configs {
  configs?: PushConfig[];
  /** The reader is no operator, and is shown what the protocol shows: where, and nothing of how it goes. */
  own?: { id: string; url: string }[];
}

export function Pushes({ id, agent, state }: { id: string; agent: string; state: string }) {
  const { value, error, again } = useAsked((stop) => configs(id, agent, stop), next, [id, agent], [state]);
  const empty = value && !value.configs?.length && !value.own?.length;
  return (
    <div class="pushes">
      <Problem error={error} />
      {empty && <p class="empty">Nobody asked to be told of this task.</p>}
      {value?.own && value.own.length > 0 && (
        <>
          <p class="empty">Only operators are told how deliveries go.</p>
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

async function configs(id: string, agent: string, signal: AbortSignal): Promise<Configs> {
  try {
    const query = new URLSearchParams({ agent });
    return { configs: [], ...(await call<Configs>(`operations/tasks/${segment(id)}/pushes?${query}`, { signal })) };
  } catch (error) {
    if (!(error instanceof Failure) || ![401, 403].includes(error.status)) throw error;
    const path = `${segment(agent)}/tasks/${segment(id)}/pushNotificationConfigs`;
    return { own: (await call<{ configs: { id: string; url: string }[] }>(path, { signal })).configs };
  }
}

/** When to look again: behind the next try; not at all where all was delivered, or is not going to be. */
function next(now: Configs | undefined): number {
  const left = now?.configs?.filter((one) => one.state === "PUSH_STATE_LIVE" && (one.delivered ?? 0) < (one.last ?? 0)) ?? [];
  if (left.length === 0) return 0;
  const tries = left.map((one) => (one.nextTry ? new Date(one.nextTry).getTime() - Date.now() + 1_000 : SOON));
  return Math.min(Math.max(Math.min(...tries), SOON), LATE);
}

const STATES: Record<string, string> = {
  PUSH_STATE_LIVE: "live",
  PUSH_STATE_DONE: "done",
  PUSH_STATE_DEAD: "given up",
  PUSH_STATE_ENDED: "ended by its receiver",
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
      said.value = first ? `Delivering again from event ${first}.` : "Delivering what is left.";
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
          ["tries", one.tries ?? 0],
          ["failed tries of the next event", one.failures],
          ["failing for", one.failingSince && <Ago time={one.failingSince} />],
          ["next try", one.delivering ? "now" : one.nextTry && clock(one.nextTry)],
          ["why", one.why],
          ["told in", `A2A ${one.dialect}`],
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
            placeholder="what is left"
            onInput={(event) => (from.value = event.currentTarget.value)}
          />
        </label>
        <button type="submit">Redeliver</button>
        <span role="status">{said.value}</span>
      </form>
      <Problem error={error.value} />
      {one.attempts && one.attempts.length > 0 && (
        <table>
          <caption>The last {plural(one.attempts.length, "try").replace("trys", "tries")}, newest first</caption>
          <thead>
            <tr>
              <th scope="col">Event</th>
              <th scope="col">At</th>
              <th scope="col">Answer</th>
              <th scope="col">Took</th>
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
