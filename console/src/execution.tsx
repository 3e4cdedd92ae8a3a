// Why is it stuck, who holds it, what happens next: what operators are told of a task, and its attempts.

import { useAsked } from "./asking";
import type { Fold } from "./fold";
import { explained } from "./looking";
import { Ago, Copy, Facts, Problem } from "./pieces";
import { clock } from "./say";
import { isTerminal, type Explanation } from "./wire";

/** Who asks stands in the audit log each time, so it is asked when there is news, and else rarely. */
const EVERY = 30_000;

interface Shown {
  id: string;
  agent: string;
  fold: Fold;
  /** The fold's. The fold stays the same object, and what reads signals is drawn again for other values only. */
  state: string;
}

export function Execution({ id, agent, fold, state }: Shown) {
  const { value, error, again } = useAsked(
    async (stop) => ({ tasks: await explained(id, stop), asked: Date.now() }),
    (now) => (now?.tasks?.some((one) => one.session || one.ready) ? EVERY : 0),
    [id],
    [state],
  );
  const found = value?.tasks?.filter((one) => one.agent === agent) ?? [];
  return (
    <div class="execution">
      <Problem error={error} />
      {value && !value.tasks && <p class="empty">Only operators are told how a task is run: its session, its attempts, what happens next.</p>}
      {found.map((one, index) => (
        <Explained key={index} one={one} asked={value?.asked ?? 0} again={again} />
      ))}
      <Attempts fold={fold} />
    </div>
  );
}

function Explained({ one, asked, again }: { one: Explanation; asked: number; again: () => void }) {
  const over = isTerminal(one.state);
  const expires = Number(one.sessionExpires ?? 0);
  return (
    <section aria-label="Explanation">
      <p class="next">
        {one.next} <span class="faint">(asked <Ago time={asked} after=" ago" />)</span>{" "}
        <button type="button" class="plain" onClick={again}>
          ask again
        </button>
      </p>
      <Facts
        of={[
          ["in this state for", <Ago time={Number(one.since ?? 0)} />],
          ["attempt", `${one.attempt ?? 1} of ${one.attemptsAllowed ?? 1}`],
          ["session", one.session && `${one.session}${one.here ? ", this server" : ""}`],
          ["session held until", expires ? `${clock(expires).slice(0, 8)}, and renewed` : undefined],
          ["worker", one.worker],
          ["waits for a worker", one.ready ? "yes" : undefined],
          ["asked to stop", one.stopping ? "yes" : undefined],
          ["unread messages", over ? undefined : (one.queuedMessages ?? "0")],
          ["readers here", one.subscribers ?? "0"],
          ["free slots here", one.freeSlots ?? "0"],
          ["tokens", one.tokens && Number(one.tokens).toLocaleString("en")],
          ["cost", one.cost],
          ["last event", one.lastEvent],
          ["made in", one.dialect && `A2A ${one.dialect}`],
          ["principal", one.principal],
          ["scope", one.scope],
          ["trace", one.traceId && <Copy value={one.traceId} name="the trace id" />],
        ]}
      />
    </section>
  );
}

/** Attempts after the first begin with a status that says so. */
function Attempts({ fold }: { fold: Fold }) {
  const begun = fold.lines.filter((line) => line.attempt);
  if (begun.length === 0) return null;
  return (
    <section aria-label="Attempts">
      <h3>Attempts begun again</h3>
      <table>
        <thead>
          <tr>
            <th scope="col">Attempt</th>
            <th scope="col">Event</th>
            <th scope="col">At</th>
          </tr>
        </thead>
        <tbody>
          {begun.map((line) => (
            <tr key={line.first}>
              <td>{line.attempt}</td>
              <td>{line.first}</td>
              <td>{clock(line.time)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
