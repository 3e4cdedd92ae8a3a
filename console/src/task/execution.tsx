// The explanation of a task for operators: who holds it, what happens next, why it waits; its steps.

import { Fragment } from "preact";
import { CopyableValue, ErrorMessage, FactList, TimeSince } from "../shared/components";
import { Link } from "../shared/content/elements";
import { formatTimeOfDay } from "../shared/format";
import { isTerminal, type Explanation } from "../shared/messages";
import { usePolling } from "../shared/polling";
import { explainTask } from "../tasks/task_finder";
import { Steps } from "./steps";

/** Each call is audited, so it is made after new events, and otherwise rarely. */
const POLL_INTERVAL_MS = 30_000;

interface ExecutionProps {
  id: string;
  tenant: string;
  state: string;
  last: number;
}

export function Execution({ id, tenant, state, last }: ExecutionProps) {
  const { value, error, refresh } = usePolling(
    async (stop) => ({ tasks: await explainTask(id, tenant, stop), receivedAt: Date.now() }),
    (now) => (now?.tasks?.some((explanation) => explanation.session || explanation.ready) ? POLL_INTERVAL_MS : 0),
    [id, tenant],
    [state],
  );
  const explanations = value?.tasks ?? [];
  return (
    <div class="execution">
      <ErrorMessage error={error} />
      {value && !value.tasks && <p class="empty">Only operators can see how a task is executed: session, attempts, next step.</p>}
      {explanations.map((explanation, index) => (
        <Fragment key={index}>
          <ExplanationFacts explanation={explanation} receivedAt={value?.receivedAt ?? 0} refresh={refresh} />
          <Steps explanation={explanation} receivedAt={value?.receivedAt ?? 0} last={last} />
        </Fragment>
      ))}
    </div>
  );
}

function ExplanationFacts({ explanation, receivedAt, refresh }: { explanation: Explanation; receivedAt: number; refresh: () => void }) {
  const ended = isTerminal(explanation.state);
  const expires = Number(explanation.sessionExpires ?? 0);
  return (
    <section aria-label="Explanation">
      <p class="next">
        <span class="faint">What happens next?</span> {explanation.next}{" "}
        <span class="faint">
          (updated <TimeSince time={receivedAt} suffix=" ago" />)
        </span>{" "}
        <button type="button" class="plain" onClick={refresh}>
          update
        </button>
      </p>
      <FactList
        items={[
          ["in this state for", <TimeSince time={Number(explanation.since ?? 0)} />],
          ["attempt", `${explanation.attempt ?? 1} of ${explanation.attemptsAllowed ?? 1}`],
          ["session", explanation.session && `${explanation.session}${explanation.here ? ", this server" : ""}`],
          ["session expires", expires ? `${formatTimeOfDay(expires).slice(0, 8)} unless renewed` : undefined],
          ["worker", explanation.worker],
          ["waiting for a slot or worker", explanation.ready ? "yes" : undefined],
          ["cancel requested", explanation.stopping ? "yes" : undefined],
          ["unread messages", ended ? undefined : (explanation.queuedMessages ?? "0")],
          ["subscribers on this server", explanation.subscribers ?? "0"],
          ["free slots on this server", explanation.freeSlots ?? "0"],
          ["tokens", explanation.tokens && Number(explanation.tokens).toLocaleString("en")],
          ["cost", explanation.cost],
          ["last event", explanation.lastEvent],
          ["created with", explanation.dialect && `A2A ${explanation.dialect}`],
          ["principal", explanation.principal],
          ["scope", explanation.scope],
          [
            "trace",
            explanation.traceId && (
              <CopyableValue value={explanation.traceId} name="the trace id">
                {explanation.traceUrl ? <Link href={explanation.traceUrl}>{explanation.traceId}</Link> : undefined}
              </CopyableValue>
            ),
          ],
        ]}
      />
    </section>
  );
}
