// The start page of operators and viewers: what needs them now, and what the agents did in the last day.

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import {
  endedTasks,
  failuresHref,
  hourHref,
  HOURS,
  readOverview,
  sumHours,
  sumOpenTasks,
  taskListHref,
  type AgentActivity,
  type HourFigures,
  type OpenTaskCount,
  type Overview,
} from "../agents/agent_activity";
import { FailedCount, formatHour, outcomeSeries, OVERVIEW_TIMES, PauseSwitch, PeriodNote, TaskCountLink, TimeCells } from "../agents/agent_components";
import { BarChart, Sparkline } from "../shared/bar_chart";
import { ErrorMessage, TimeSince, Zero } from "../shared/components";
import { formatNumber, formatCount, formatPercent, plural, sum } from "../shared/format";
import { maxValue, type Metrics } from "../shared/metrics";
import { AccessError, EmptyState, isAccessError, Page } from "../shared/page";
import { usePolling } from "../shared/polling";
import { href, replaceRoute, route } from "../shared/route";
import { findConcerns, FAILING_HOURS, FAILING_TASKS, type Concern } from "./concerns";

const POLL_INTERVAL_MS = 10_000;

export function OverviewPage() {
  const { value, error, refresh } = usePolling(readPage, POLL_INTERVAL_MS, []);
  useEffect(() => {
    // The start page of callers without the grant is the list of their tasks.
    if (isAccessError(error) && route.value.path.length === 0) replaceRoute(["tasks"]);
  }, [error]);
  const all = value?.agents ?? [];
  const hours = sumHours(all);
  const idle = value !== undefined && all.every((agent) => isIdle(agent));
  return (
    <Page title="Overview">
      {isAccessError(error) ? <AccessError error={error} subject="the overview" /> : <ErrorMessage error={error} />}
      {value && (
        <>
          <Concerns concerns={value.concerns} failed={sum(hours.slice(-FAILING_HOURS).map((hour) => hour.failed))} metrics={value.metrics} refresh={refresh} />
          {idle ? (
            <EmptyState title="No tasks in the last day.">
              <p>
                <a href="#/new">Begin a task</a>, or send one with <code>dragoman send</code>.
              </p>
            </EmptyState>
          ) : (
            <>
              <Tiles agents={all} hours={hours} />
              <BarChart
                title="Tasks that ended, by hour"
                labels={hours.map((hour) => formatHour(hour.start))}
                series={outcomeSeries(hours)}
                unit={formatNumber}
                isInteger
                links={hours.map((hour) => hourHref(hour))}
              />
            </>
          )}
          <AgentsTable agents={all} />
          <PeriodNote />
          <ServerSummary metrics={value.metrics} />
        </>
      )}
    </Page>
  );
}

async function readPage(signal: AbortSignal): Promise<Overview & { concerns: Concern[] }> {
  const overview = await readOverview(signal);
  return { ...overview, concerns: await findConcerns(overview, signal) };
}

function isIdle({ queued, running, waiting, hours }: AgentActivity): boolean {
  return queued.count + running.count + waiting.count + sum(hours.map((hour) => hour.begun + endedTasks(hour) + hour.turns)) === 0;
}

interface ConcernsProps {
  concerns: readonly Concern[];
  /** Tasks that failed in the last hours, also where they are too few for a concern. */
  failed: number;
  metrics: Metrics | undefined;
  refresh: () => void;
}

function Concerns({ concerns, failed, metrics, refresh }: ConcernsProps) {
  if (concerns.length === 0) {
    return (
      <div class="all-clear" role="status">
        <svg viewBox="0 0 20 20" aria-hidden="true">
          <path d="M4 10.5l4 4 8-9" />
        </svg>
        <p>
          <b>Nothing needs you now.</b>{" "}
          <span>
            No task waits longer than ten minutes for a turn, no agent is paused or fails in a tenth of its tasks ({FAILING_TASKS} or more)
            {metrics ? (
              ", no webhook has failed for a minute."
            ) : (
              <>
                . The server does not show you its metrics: look at <a href="#/webhooks">webhooks</a> yourself.
              </>
            )}
          </span>
          {failed > 0 && (
            <span class="faint">
              {" "}
              <a href={failuresHref("")}>{plural(failed, "task")} failed</a> in the last {FAILING_HOURS} hours.
            </span>
          )}
        </p>
      </div>
    );
  }
  return (
    <section aria-label="Needs you now">
      <h3>Needs you now</h3>
      <ul class="concerns">
        {concerns.map((concern) => (
          <li key={concern.title} data-tone={concern.kind}>
            <a href={concern.link}>
              <b>{concern.title}</b>
              <span>{concern.text}</span>
            </a>
            {concern.paused && <PauseSwitch agent={concern.paused} refresh={refresh} />}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Tiles({ agents, hours }: { agents: readonly AgentActivity[]; hours: readonly HourFigures[] }) {
  const [failed, all] = [sum(hours.map((hour) => hour.failed)), sum(hours.map(endedTasks))];
  const queued = sumOpenTasks(agents.map((agent) => agent.queued));
  const waiting = sumOpenTasks(agents.map((agent) => agent.waiting));
  const running = sumOpenTasks(agents.map((agent) => agent.running));
  return (
    <div class="tiles">
      <Tile name="In the queue" value={formatCount(queued)} link={taskListHref("", "SUBMITTED")}>
        <OldestTask tasks={queued} none="nothing waits" />
      </Tile>
      <Tile name="Running" value={formatCount(running)} link={taskListHref("", "WORKING")}>
        <OldestTask tasks={running} none="no turn runs" />
      </Tile>
      <Tile name="Waiting for callers" value={formatCount(waiting)} link={taskListHref("", "INPUT_REQUIRED")}>
        <OldestTask tasks={waiting} none="no question is open" />
      </Tile>
      <Tile
        name={`Completed in ${HOURS} h`}
        value={formatNumber(sum(hours.map((hour) => hour.completed)))}
        link={taskListHref("", "COMPLETED", "day")}
      >
        {formatNumber(sum(hours.map((hour) => hour.begun)))} begun
      </Tile>
      <Tile name={`Failed in ${HOURS} h`} value={formatNumber(failed)} link={failuresHref("")}>
        {formatPercent(failed, all)} of all that ended
      </Tile>
    </div>
  );
}

function Tile({ name, value, link, children }: { name: string; value: string; link: string; children: ComponentChildren }) {
  return (
    <a class="tile" href={link}>
      <span>{name}</span>
      <b class={value === "0" ? "zero" : undefined}>{value}</b>
      <span class="faint">{children}</span>
    </a>
  );
}

function OldestTask({ tasks, none }: { tasks: OpenTaskCount; none: string }) {
  if (tasks.oldest === undefined) return <>{none}</>;
  return (
    <>
      oldest <TimeSince time={tasks.oldest} />
    </>
  );
}

function AgentsTable({ agents }: { agents: readonly AgentActivity[] }) {
  return (
    <div class="wide-table" tabIndex={0} role="region" aria-label="Agents">
      <table class="figures">
        <thead>
          <tr>
            <th scope="col">Agent</th>
            <th scope="col">Last {HOURS} h</th>
            <th scope="col">In the queue</th>
            <th scope="col">Running</th>
            <th scope="col">Waiting</th>
            <th scope="col">Completed</th>
            <th scope="col">Failed</th>
            {OVERVIEW_TIMES.map(([name], index) => (
              <th key={index} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {agents.map((agent) => (
            <AgentRow key={agent.id} agent={agent} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function AgentRow({ agent }: { agent: AgentActivity }) {
  const [failed, all] = [sum(agent.hours.map((hour) => hour.failed)), sum(agent.hours.map(endedTasks))];
  const completed = sum(agent.hours.map((hour) => hour.completed));
  return (
    <tr>
      <th scope="row">
        <a href={href(["agents", agent.id])}>{agent.name}</a> {agent.pause && <span class="tag">paused</span>}
      </th>
      <td>
        <Sparkline title={`${agent.name}: ${formatNumber(all)} ended, ${formatNumber(failed)} failed`} series={outcomeSeries(agent.hours)} />
      </td>
      <td>
        <TaskCountLink tasks={agent.queued} link={taskListHref(agent.id, "SUBMITTED")} />
      </td>
      <td>
        <TaskCountLink tasks={agent.running} link={taskListHref(agent.id, "WORKING")} />
      </td>
      <td>
        <TaskCountLink tasks={agent.waiting} link={taskListHref(agent.id, "INPUT_REQUIRED")} />
      </td>
      <td>{completed ? formatNumber(completed) : <Zero />}</td>
      <td class={failed ? "failed" : undefined}>
        <FailedCount agent={agent.id} failed={failed} all={all} />
      </td>
      <TimeCells activity={agent} columns={OVERVIEW_TIMES} />
    </tr>
  );
}

function ServerSummary({ metrics }: { metrics: Metrics | undefined }) {
  if (!metrics) return null;
  return (
    <p class="faint">
      This server runs {formatNumber(maxValue(metrics, "dragoman_runs_active"))} of at most {formatNumber(maxValue(metrics, "dragoman_slots"))} turns.
    </p>
  );
}
