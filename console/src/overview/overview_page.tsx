// The start page of operators and viewers: what needs them now, and what the agents did in the last day.

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import {
  endedTasks,
  HOURS,
  readOverview,
  sumHours,
  sumOpenTasks,
  taskListHref,
  type AgentActivity,
  type HourFigures,
  type OpenTaskCount,
} from "../agents/agent_activity";
import { formatHour, MeanTurnDuration, outcomeSeries, PauseSwitch, TurnQuantile } from "../agents/agent_components";
import { BarChart, Sparkline } from "../shared/bar_chart";
import { ErrorMessage, TimeSince } from "../shared/components";
import { formatNumber, formatCount, formatDuration, formatPercent, sum } from "../shared/format";
import { maxValue, quantile, type Metrics } from "../shared/metrics";
import { AccessError, EmptyState, isAccessError, Page } from "../shared/page";
import { usePolling } from "../shared/polling";
import { href, replaceRoute, route } from "../shared/route";
import { concerns, type Concern } from "./concerns";

const POLL_INTERVAL_MS = 10_000;

export function OverviewPage() {
  const { value, error, refresh } = usePolling(readOverview, POLL_INTERVAL_MS, []);
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
          <Concerns concerns={concerns(value)} metrics={value.metrics} refresh={refresh} />
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
              />
            </>
          )}
          <AgentsTable agents={all} metrics={value.metrics} />
          <ServerSummary metrics={value.metrics} />
        </>
      )}
    </Page>
  );
}

function isIdle({ queued, running, waiting, hours }: AgentActivity): boolean {
  return queued.count + running.count + waiting.count + sum(hours.map((hour) => hour.begun + endedTasks(hour) + hour.turns)) === 0;
}

function Concerns({ concerns, metrics, refresh }: { concerns: readonly Concern[]; metrics: Metrics | undefined; refresh: () => void }) {
  if (concerns.length === 0) {
    return (
      <div class="all-clear" role="status">
        <svg viewBox="0 0 20 20" aria-hidden="true">
          <path d="M4 10.5l4 4 8-9" />
        </svg>
        <p>
          <b>Nothing needs you now.</b>{" "}
          <span>
            No task waits longer than ten minutes for a turn, no agent fails or is paused
            {metrics ? (
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
      <Tile name={`Failed in ${HOURS} h`} value={formatNumber(failed)} link={taskListHref("", "FAILED", "day")}>
        {formatPercent(failed, all)} of all that ended
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

function OldestTask({ tasks, none }: { tasks: OpenTaskCount; none: string }) {
  if (tasks.oldest === undefined) return <>{none}</>;
  return (
    <>
      oldest <TimeSince time={tasks.oldest} />
    </>
  );
}

function AgentsTable({ agents, metrics }: { agents: readonly AgentActivity[]; metrics: Metrics | undefined }) {
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
            {metrics && <th scope="col">p50</th>}
            {metrics && <th scope="col">p95</th>}
          </tr>
        </thead>
        <tbody>
          {agents.map((agent) => (
            <AgentRow key={agent.id} agent={agent} metrics={metrics} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function AgentRow({ agent: agent, metrics }: { agent: AgentActivity; metrics: Metrics | undefined }) {
  const [failed, all] = [sum(agent.hours.map((hour) => hour.failed)), sum(agent.hours.map(endedTasks))];
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
      <td>{formatNumber(sum(agent.hours.map((hour) => hour.completed)))}</td>
      <td class={failed ? "failed" : undefined}>
        {failed ? <a href={taskListHref(agent.id, "FAILED", "day")}>{formatNumber(failed)}</a> : 0}{" "}
        {failed > 0 && <small>{formatPercent(failed, all)}</small>}
      </td>
      <td>
        <MeanTurnDuration hours={agent.hours} />
      </td>
      {metrics && (
        <td>
          <TurnQuantile metrics={metrics} agent={agent.id} share={0.5} />
        </td>
      )}
      {metrics && (
        <td>
          <TurnQuantile metrics={metrics} agent={agent.id} share={0.95} />
        </td>
      )}
    </tr>
  );
}

/** A number of tasks that links to them, and how long the oldest has been in this state. */
function TaskCountLink({ tasks, link }: { tasks: OpenTaskCount; link: string }) {
  if (!tasks.count) return <>0</>;
  return (
    <>
      <a href={link}>{formatCount(tasks)}</a>{" "}
      {tasks.oldest !== undefined && (
        <small>
          <TimeSince time={tasks.oldest} />
        </small>
      )}
    </>
  );
}

/** Excludes streams, which last as long as they are read, and pages, which are not operations. */
const isOperation = ({ binding, method }: Record<string, string>) => binding !== "page" && !/stream|subscri/i.test(method ?? "");

function ServerSummary({ metrics }: { metrics: Metrics | undefined }) {
  const [median, p95] = [0.5, 0.95].map((share) => quantile(metrics, share, "dragoman_request_duration_seconds", isOperation));
  if (median === undefined || p95 === undefined) return null;
  return (
    <p class="faint">
      p50 and p95 are of all turns since this server started. It runs {formatNumber(maxValue(metrics, "dragoman_runs_active"))} of at most{" "}
      {formatNumber(maxValue(metrics, "dragoman_slots"))} turns; its responses took {formatDuration(median * 1000)} (p50) and{" "}
      {formatDuration(p95 * 1000)} (p95).
    </p>
  );
}
