// The explanation of a task for operators: who holds it, what happens next, why it waits; its steps.

import { Fragment } from "preact";
import { useAsked } from "../shared/polling";
import { Link } from "../shared/content/elements";
import { explained } from "../tasks/task_finder";
import { Ago, Copy, Facts, Problem } from "../shared/components";
import { clock } from "../shared/format";
import { Steps } from "./steps";
import { isTerminal, type Explanation } from "../shared/messages";

/** Each call is audited, so it is made after new events, and otherwise rarely. */
const EVERY = 30_000;

interface Shown {
  id: string;
  tenant: string;
  state: string;
  last: number;
}

export function Execution({ id, tenant, state, last }: Shown) {
  const { value, error, again } = useAsked(
    async (stop) => ({ tasks: await explained(id, tenant, stop), asked: Date.now() }),
    (now) => (now?.tasks?.some((one) => one.session || one.ready) ? EVERY : 0),
    [id, tenant],
    [state],
  );
  const found = value?.tasks ?? [];
  return (
    <div class="execution">
      <Problem error={error} />
      {value && !value.tasks && <p class="empty">Only operators can see how a task is executed: session, attempts, next step.</p>}
      {found.map((one, index) => (
        <Fragment key={index}>
          <Explained one={one} asked={value?.asked ?? 0} again={again} />
          <Steps one={one} asked={value?.asked ?? 0} last={last} />
        </Fragment>
      ))}
    </div>
  );
}

function Explained({ one, asked, again }: { one: Explanation; asked: number; again: () => void }) {
  const over = isTerminal(one.state);
  const expires = Number(one.sessionExpires ?? 0);
  return (
    <section aria-label="Explanation">
      <p class="next">
        {one.next} <span class="faint">(updated <Ago time={asked} after=" ago" />)</span>{" "}
        <button type="button" class="plain" onClick={again}>
          update
        </button>
      </p>
      <Facts
        of={[
          ["in this state for", <Ago time={Number(one.since ?? 0)} />],
          ["attempt", `${one.attempt ?? 1} of ${one.attemptsAllowed ?? 1}`],
          ["session", one.session && `${one.session}${one.here ? ", this server" : ""}`],
          ["session expires", expires ? `${clock(expires).slice(0, 8)} unless renewed` : undefined],
          ["worker", one.worker],
          ["waiting for a slot or worker", one.ready ? "yes" : undefined],
          ["cancel requested", one.stopping ? "yes" : undefined],
          ["unread messages", over ? undefined : (one.queuedMessages ?? "0")],
          ["subscribers on this server", one.subscribers ?? "0"],
          ["free slots on this server", one.freeSlots ?? "0"],
          ["tokens", one.tokens && Number(one.tokens).toLocaleString("en")],
          ["cost", one.cost],
          ["last event", one.lastEvent],
          ["created with", one.dialect && `A2A ${one.dialect}`],
          ["principal", one.principal],
          ["scope", one.scope],
          [
            "trace",
            one.traceId && (
              <Copy value={one.traceId} name="the trace id">
                {one.traceUrl ? <Link href={one.traceUrl}>{one.traceId}</Link> : undefined}
              </Copy>
            ),
          ],
        ]}
      />
    </section>
  );
}
