// The agents: for operators and viewers with what they do now, for others by name.

import { AgentPage } from "./agent_page";
import { Figures, outcomes, PauseNote, PauseSwitch } from "./agent_components";
import { useAsked } from "../shared/polling";
import { Spark } from "../shared/bar_chart";
import { agents, unreachable } from "../shared/agents";
import { ended, HOURS, overview, tasksOf, workers, type AgentNow, type Overview } from "./agent_activity";
import { Empty, isRefusal, Page } from "../shared/page";
import { Problem } from "../shared/components";
import { href, route } from "../shared/route";
import { count, plural, sum } from "../shared/format";
import type { Agent, WorkerAgent } from "../shared/messages";

const EVERY = 10_000;

export function Agents() {
  const now = useAsked(overview, EVERY, []);
  const connected = useAsked(workers, EVERY, []);
  const asked = route.value.path[1];
  const known = agents.value;
  const figures = (id: string) => now.value?.agents.find((one) => one.id === id);
  if (asked) {
    const agent = known?.find((one) => one.id === asked);
    if (!agent) return known ? <NoAgent id={asked} /> : null;
    return (
      <AgentPage
        key={agent.id}
        agent={agent}
        now={figures(agent.id)}
        numbers={now.value?.numbers}
        workers={connected.value?.get(agent.id)}
        again={now.again}
      />
    );
  }
  return (
    <Page title="Agents">
      <Problem error={unreachable.value} />
      {!isRefusal(now.error) && <Problem error={now.error ?? connected.error} />}
      <ul class="cards">
        {known?.map((one) => (
          <li key={one.id}>
            <Card agent={one} now={figures(one.id)} all={now.value} workers={connected.value?.get(one.id)} again={now.again} />
          </li>
        ))}
      </ul>
    </Page>
  );
}

function NoAgent({ id }: { id: string }) {
  return (
    <Page title="Agent not found">
      <Empty title={`There is no agent ${id}.`}>
        <p>
          It may not be visible to you, or it was removed. <a href="#/agents">See all agents</a>
        </p>
      </Empty>
    </Page>
  );
}

interface Shown {
  agent: Agent;
  now: AgentNow | undefined;
  all: Overview | undefined;
  workers: WorkerAgent | undefined;
  again: () => void;
}

function Card({ agent, now, all, workers, again }: Shown) {
  return (
    <article class="card" aria-label={agent.name} data-state={now?.pause && "paused"}>
      <header>
        <h3>
          <a href={href(["agents", agent.id])}>{agent.name}</a>
        </h3>
        <code class="faint">{agent.id}</code>
        {agent.root && <span class="tag">root</span>}
        {now?.version && <span class="tag">{now.version}</span>}
        {now?.pause && <span class="tag">paused</span>}
      </header>
      <p class="faint">{agent.description}</p>
      {now && <PauseNote now={now} />}
      {now && (
        <>
          <Figures now={now} numbers={all?.numbers} />
          <Spark
            title={`The last ${HOURS} hours: ${count(sum(now.hours.map(ended)))} tasks ended`}
            series={outcomes(now.hours)}
          />
        </>
      )}
      {workers && <p class={workers.workers?.length ? "faint" : "why"}>{workersText(workers)}</p>}
      <footer class="buttons">
        <a class="button" href={href(["new"], { agent: agent.id })}>
          New task
        </a>
        <a class="button" href={tasksOf(agent.id, "")}>
          Tasks
        </a>
        {now && <PauseSwitch agent={now} again={again} />}
      </footer>
    </article>
  );
}

function workersText({ workers = [] }: WorkerAgent): string {
  if (workers.length === 0) return "No worker is connected to this server.";
  return `${plural(workers.length, "worker")} connected, room for ${count(sum(workers.map((one) => one.free ?? 0)))} more turns`;
}
