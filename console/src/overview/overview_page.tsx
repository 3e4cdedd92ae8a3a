// The start page of operators and viewers: what needs them now, and what the agents did in the last day.

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { useAsked } from "../shared/polling";
import { Bars, Spark } from "../shared/bar_chart";
import { hourText, Latency, outcomes, PauseSwitch, TurnTime } from "../agents/agent_components";
import { largest, quantile, type Numbers } from "../shared/metrics";
import { concerns, ended, HOURS, hoursOf, overview, tasksOf, together, type AgentNow, type Concern, type Hour, type Tasks } from "../agents/agent_activity";
import { Empty, isRefusal, Page, Refusal } from "../shared/page";
import { Ago, Problem } from "../shared/components";
import { href, replace, route } from "../shared/route";
import { amount, count, percent, sum, took } from "../shared/format";

const EVERY = 10_000;

export function OverviewPage() {
  const { value, error, again } = useAsked(overview, EVERY, []);
  useEffect(() => {
    // The start page of callers without the grant is the list of their tasks.
    if (isRefusal(error) && route.value.path.length === 0) replace(["tasks"]);
  }, [error]);
  const all = value?.agents ?? [];
  const hours = hoursOf(all);
  const idle = value !== undefined && all.every((one) => isIdle(one));
  return (
    <Page title="Overview">
      {isRefusal(error) ? <Refusal error={error} what="the overview" /> : <Problem error={error} />}
      {value && (
        <>
          <Concerns of={concerns(value)} numbers={value.numbers} again={again} />
          {idle ? (
            <Empty title="No tasks in the last day.">
              <p>
                <a href="#/new">Begin a task</a>, or send one with <code>dragoman send</code>.
              </p>
            </Empty>
          ) : (
            <>
              <Tiles agents={all} hours={hours} />
              <Bars
                title="Tasks that ended, by hour"
                labels={hours.map((one) => hourText(one.at))}
                series={outcomes(hours)}
                unit={count}
                whole
              />
            </>
          )}
          <AgentsTable agents={all} numbers={value.numbers} />
          <Server numbers={value.numbers} />
        </>
      )}
    </Page>
  );
}

function isIdle({ queued, running, asking, hours }: AgentNow): boolean {
  return queued.count + running.count + asking.count + sum(hours.map((one) => one.begun + ended(one) + one.turns)) === 0;
}

function Concerns({ of, numbers, again }: { of: readonly Concern[]; numbers: Numbers | undefined; again: () => void }) {
  if (of.length === 0) {
    return (
      <div class="calm" role="status">
        <svg viewBox="0 0 20 20" aria-hidden="true">
          <path d="M4 10.5l4 4 8-9" />
        </svg>
        <p>
          <b>Nothing needs you now.</b>{" "}
          <span>
            No task waits longer than ten minutes for a turn, no agent fails or is paused
            {numbers ? (
              ", no webhook fails."
            ) : (
              <>
                . The server does not show you its metrics: look at <a href="#/webhooks">webhooks</a> yourself.
              </>
            )}
          </span>
        </p>
      </div>
    );
  }
  return (
    <section aria-label="Needs you now">
      <h3>Needs you now</h3>
      <ul class="concerns">
        {of.map((one) => (
          <li key={one.title} data-tone={one.kind}>
            <a href={one.link}>
              <b>{one.title}</b>
              <span>{one.text}</span>
            </a>
            {one.paused && <PauseSwitch agent={one.paused} again={again} />}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Tiles({ agents, hours }: { agents: readonly AgentNow[]; hours: readonly Hour[] }) {
  const [failed, all] = [sum(hours.map((one) => one.failed)), sum(hours.map(ended))];
  const queued = together(agents.map((one) => one.queued));
  const asking = together(agents.map((one) => one.asking));
  const running = together(agents.map((one) => one.running));
  return (
    <div class="tiles">
      <Tile name="In the queue" value={amount(queued)} link={tasksOf("", "SUBMITTED")}>
        <Oldest of={queued} none="nothing waits" />
      </Tile>
      <Tile name="Running" value={amount(running)} link={tasksOf("", "WORKING")}>
        <Oldest of={running} none="no turn runs" />
      </Tile>
      <Tile name="Waiting for callers" value={amount(asking)} link={tasksOf("", "INPUT_REQUIRED")}>
        <Oldest of={asking} none="no question is open" />
      </Tile>
      <Tile name={`Completed in ${HOURS} h`} value={count(sum(hours.map((one) => one.completed)))} link={tasksOf("", "COMPLETED", "day")}>
        {count(sum(hours.map((one) => one.begun)))} begun
      </Tile>
      <Tile name={`Failed in ${HOURS} h`} value={count(failed)} link={tasksOf("", "FAILED", "day")}>
        {percent(failed, all)} of all that ended
      </Tile>
    </div>
  );
}

function Tile({ name, value, link, children }: { name: string; value: string; link: string; children: ComponentChildren }) {
  return (
    <a class="tile" href={link}>
      <span>{name}</span>
      <b>{value}</b>
      <span class="faint">{children}</span>
    </a>
  );
}

function Oldest({ of, none }: { of: Tasks; none: string }) {
  if (of.oldest === undefined) return <>{none}</>;
  return (
    <>
      oldest <Ago time={of.oldest} />
    </>
  );
}

function AgentsTable({ agents, numbers }: { agents: readonly AgentNow[]; numbers: Numbers | undefined }) {
  return (
    <div class="wide-table" tabIndex={0} role="region" aria-label="Agents">
      <table class="figures">
        <thead>
          <tr>
            <th scope="col">Agent</th>
            <th scope="col">Last {HOURS} h</th>
            <th scope="col">In the queue</th>
            <th scope="col">Running</th>
            <th scope="col">Waiting for callers</th>
            <th scope="col">Completed</th>
            <th scope="col">Failed</th>
            <th scope="col">Turn, mean</th>
            {numbers && <th scope="col">p50</th>}
            {numbers && <th scope="col">p95</th>}
          </tr>
        </thead>
        <tbody>
          {agents.map((one) => (
            <Line key={one.id} one={one} numbers={numbers} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Line({ one, numbers }: { one: AgentNow; numbers: Numbers | undefined }) {
  const [failed, all] = [sum(one.hours.map((hour) => hour.failed)), sum(one.hours.map(ended))];
  return (
    <tr>
      <th scope="row">
        <a href={href(["agents", one.id])}>{one.name}</a> {one.pause && <span class="tag">paused</span>}
      </th>
      <td>
        <Spark title={`${one.name}: ${count(all)} ended, ${count(failed)} failed`} series={outcomes(one.hours)} />
      </td>
      <td>
        <Number of={one.queued} link={tasksOf(one.id, "SUBMITTED")} />
      </td>
      <td>
        <Number of={one.running} link={tasksOf(one.id, "WORKING")} />
      </td>
      <td>
        <Number of={one.asking} link={tasksOf(one.id, "INPUT_REQUIRED")} />
      </td>
      <td>{count(sum(one.hours.map((hour) => hour.completed)))}</td>
      <td class={failed ? "failed" : undefined}>
        {failed ? <a href={tasksOf(one.id, "FAILED", "day")}>{count(failed)}</a> : 0} {failed > 0 && <small>{percent(failed, all)}</small>}
      </td>
      <td>
        <TurnTime hours={one.hours} />
      </td>
      {numbers && (
        <td>
          <Latency numbers={numbers} agent={one.id} share={0.5} />
        </td>
      )}
      {numbers && (
        <td>
          <Latency numbers={numbers} agent={one.id} share={0.95} />
        </td>
      )}
    </tr>
  );
}

/** A number of tasks that links to them, and how long the oldest has been in this state. */
function Number({ of, link }: { of: Tasks; link: string }) {
  if (!of.count) return <>0</>;
  return (
    <>
      <a href={link}>{amount(of)}</a>{" "}
      {of.oldest !== undefined && (
        <small>
          <Ago time={of.oldest} />
        </small>
      )}
    </>
  );
}

/** Excludes streams, which last as long as they are read, and pages, which are not operations. */
const answered = ({ binding, method }: Record<string, string>) => binding !== "page" && !/stream|subscri/i.test(method ?? "");

function Server({ numbers }: { numbers: Numbers | undefined }) {
  const [half, most] = [0.5, 0.95].map((share) => quantile(numbers, share, "dragoman_request_duration_seconds", answered));
  if (half === undefined || most === undefined) return null;
  return (
    <p class="faint">
      p50 and p95 are of all turns since this server started. It runs {count(largest(numbers, "dragoman_runs_active"))} of at most{" "}
      {count(largest(numbers, "dragoman_slots"))} turns; its responses took {took(half * 1000)} (p50) and {took(most * 1000)} (p95).
    </p>
  );
}
