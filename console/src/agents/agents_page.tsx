// The agents; for operators and viewers with their activity.

import { agents, catalogError } from "../shared/agents";
import { Sparkline } from "../shared/bar_chart";
import { ErrorMessage } from "../shared/components";
import { formatNumber, plural, sum } from "../shared/format";
import type { Agent, WorkerAgent } from "../shared/messages";
import { EmptyState, isAccessError, Page } from "../shared/page";
import { usePolling } from "../shared/polling";
import { href, route } from "../shared/route";
import { endedTasks, HOURS, readOverview, readWorkers, taskListHref, type AgentActivity, type Overview } from "./agent_activity";
import { ActivityFigures, outcomeSeries, PauseNote, PauseSwitch } from "./agent_components";
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
        metrics={activity.value?.metrics}
        workers={connected.value?.get(agent.id)}
        refresh={activity.refresh}
      />
    );
  }
  return (
    <Page title="Agents">
      <ErrorMessage error={catalogError.value} />
      {!isAccessError(activity.error) && <ErrorMessage error={activity.error ?? connected.error} />}
      <ul class="cards">
        {catalog?.map((agent) => (
          <li key={agent.id}>
            <AgentCard
              agent={agent}
              activity={activityOf(agent.id)}
              overview={activity.value}
              workers={connected.value?.get(agent.id)}
              refresh={activity.refresh}
            />
          </li>
        ))}
      </ul>
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

interface AgentCardProps {
  agent: Agent;
  activity: AgentActivity | undefined;
  overview: Overview | undefined;
  workers: WorkerAgent | undefined;
  refresh: () => void;
}

function AgentCard({ agent, activity, overview, workers, refresh }: AgentCardProps) {
  return (
    <article class="card" aria-label={agent.name} data-state={activity?.pause && "paused"}>
      <header>
        <h3>
          <a href={href(["agents", agent.id])}>{agent.name}</a>
        </h3>
        <code class="faint">{agent.id}</code>
        {agent.root && <span class="tag">root</span>}
        {activity?.version && <span class="tag">{activity.version}</span>}
        {activity?.pause && <span class="tag">paused</span>}
      </header>
      <p class="faint">{agent.description}</p>
      {activity && <PauseNote activity={activity} />}
      {activity && (
        <>
          <ActivityFigures activity={activity} metrics={overview?.metrics} />
          <Sparkline
            title={`The last ${HOURS} hours: ${formatNumber(sum(activity.hours.map(endedTasks)))} tasks ended`}
            series={outcomeSeries(activity.hours)}
          />
        </>
      )}
      {workers && <p class={workers.workers?.length ? "faint" : "why"}>{workersText(workers)}</p>}
      <footer class="buttons">
        <a class="button" href={href(["new"], { agent: agent.id })}>
          New task
        </a>
        <a class="button" href={taskListHref(agent.id, "")}>
          Tasks
        </a>
        {activity && <PauseSwitch agent={activity} refresh={refresh} />}
      </footer>
    </article>
  );
}

function workersText({ workers = [] }: WorkerAgent): string {
  if (workers.length === 0) return "No worker is connected to this server.";
  return `${plural(workers.length, "worker")} connected, room for ${formatNumber(sum(workers.map((worker) => worker.free ?? 0)))} more turns`;
}
