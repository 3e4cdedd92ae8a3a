// The agents; for operators and viewers with their activity.

import { agents, catalogError } from "../shared/agents";
import { Sparkline } from "../shared/bar_chart";
import { ErrorMessage, TimeSince, Zero } from "../shared/components";
import { formatNumber, plural, sum } from "../shared/format";
import type { Agent, AgentPause, WorkerAgent } from "../shared/messages";
import { EmptyState, isAccessError, Page } from "../shared/page";
import { usePolling } from "../shared/polling";
import { href, route } from "../shared/route";
import { endedTasks, HOURS, pausedByText, readOverview, readWorkers, taskListHref, type AgentActivity, type Overview } from "./agent_activity";
import { AGENT_TIMES, FailedCount, outcomeSeries, PeriodNote, PauseSwitch, TaskCountLink, TimeCells } from "./agent_components";
import { AgentPage } from "./agent_page";

const POLL_INTERVAL_MS = 10_000;

export function AgentsPage() {
  const activity = usePolling(readOverview, POLL_INTERVAL_MS, []);
  const connected = usePolling(readWorkers, POLL_INTERVAL_MS, []);
  const selectedId = route.value.path[1];
  const catalog = agents.value;
  const activityOf = (id: string) => activity.value?.agents.find((agent) => agent.id === id);
  if (selectedId) {
    const agent = catalog?.find((agent) => agent.id === selectedId);
    if (!agent) return catalog ? <AgentNotFound id={selectedId} /> : null;
    return (
      <AgentPage
        key={agent.id}
        agent={agent}
        activity={activityOf(agent.id)}
        workers={connected.value?.get(agent.id)}
        refresh={activity.refresh}
      />
    );
  }
  return (
    <Page title="Agents">
      <ErrorMessage error={catalogError.value} />
      {!isAccessError(activity.error) && <ErrorMessage error={activity.error ?? connected.error} />}
      <div class="wide-table" tabIndex={0} role="region" aria-label="Table of agents">
        <table class="figures agents">
          <thead>
            <tr>
              <th scope="col">Agent</th>
              {activity.value && <th scope="col">Last {HOURS} h</th>}
              {activity.value && ["In the queue", "Running", "Waiting", "Failed", ...AGENT_TIMES.map(([name]) => name)].map((name, index) => <th key={index} scope="col">{name}</th>)}
              {connected.value && <th scope="col">Workers</th>}
              <th scope="col">
                <span class="hidden">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {catalog?.map((agent) => (
              <AgentRow
                key={agent.id}
                agent={agent}
                activity={activityOf(agent.id)}
                overview={activity.value}
                workers={connected.value && (connected.value.get(agent.id) ?? null)}
                refresh={activity.refresh}
              />
            ))}
          </tbody>
        </table>
      </div>
      {activity.value && <PeriodNote />}
    </Page>
  );
}

function AgentNotFound({ id }: { id: string }) {
  return (
    <Page title="Agent not found">
      <EmptyState title={`There is no agent ${id}.`}>
        <p>
          It may not be visible to you, or it was removed. <a href="#/agents">See all agents</a>
        </p>
      </EmptyState>
    </Page>
  );
}

interface AgentRowProps {
  agent: Agent;
  activity: AgentActivity | undefined;
  overview: Overview | undefined;
  /** Null for an agent that needs none; undefined for callers who do not see workers. */
  workers: WorkerAgent | null | undefined;
  refresh: () => void;
}

/** Name and description, figures, and actions while the row has the pointer or the focus. */
function AgentRow({ agent, activity, overview, workers, refresh }: AgentRowProps) {
  return (
    <tr aria-label={agent.name} data-state={activity?.pause && "paused"}>
      <th scope="row">
        <a href={href(["agents", agent.id])}>{agent.name}</a> {agent.root && <span class="tag">root</span>}{" "}
        {activity?.version && <span class="tag">{activity.version}</span>} {activity?.pause && <span class="tag paused">paused</span>}
        <small title={agent.description}>{activity?.pause ? <PauseText pause={activity.pause} /> : agent.description}</small>
      </th>
      {overview && <ActivityCells activity={activity} />}
      {overview && <TimeCells activity={activity} columns={AGENT_TIMES} />}
      {workers !== undefined && <td data-label="Workers">{workers ? <WorkersCell agent={workers} /> : <Zero>–</Zero>}</td>}
      <td class="row-actions">
        <span>
          {activity && <PauseSwitch agent={activity} refresh={refresh} />}
          <a class="button" href={taskListHref(agent.id, "")}>
            Tasks
          </a>
          <a class="button" href={href(["new"], { agent: agent.id })}>
            New task
          </a>
        </span>
      </td>
    </tr>
  );
}

function ActivityCells({ activity }: { activity: AgentActivity | undefined }) {
  if (!activity) return <td colSpan={5} />;
  const [failed, all] = [sum(activity.hours.map((hour) => hour.failed)), sum(activity.hours.map(endedTasks))];
  return (
    <>
      <td>
        <Sparkline title={`${activity.name}: ${formatNumber(all)} ended, ${formatNumber(failed)} failed`} series={outcomeSeries(activity.hours)} />
      </td>
      <td data-label="In the queue">
        <TaskCountLink tasks={activity.queued} link={taskListHref(activity.id, "SUBMITTED")} />
      </td>
      <td data-label="Running">
        <TaskCountLink tasks={activity.running} link={taskListHref(activity.id, "WORKING")} />
      </td>
      <td data-label="Waiting">
        <TaskCountLink tasks={activity.waiting} link={taskListHref(activity.id, "INPUT_REQUIRED")} />
      </td>
      <td data-label="Failed" class={failed ? "failed" : undefined}>
        <FailedCount agent={activity.id} failed={failed} all={all} />
      </td>
    </>
  );
}

function PauseText({ pause }: { pause: AgentPause }) {
  return (
    <>
      paused <TimeSince time={pause.since} suffix=" ago" />
      {pausedByText(pause)}
      {pause.reason && `: ${pause.reason}`}
    </>
  );
}

function WorkersCell({ agent: { workers = [] } }: { agent: WorkerAgent }) {
  if (workers.length === 0) return <span class="why">none</span>;
  const free = sum(workers.map((worker) => worker.free ?? 0));
  return (
    <>
      {formatNumber(workers.length)} <small>room for {plural(free, "turn")}</small>
    </>
  );
}
