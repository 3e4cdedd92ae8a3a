// One agent: its activity, skills, workers and card.

import { useState } from "preact/hooks";
import { call, encodeSegment } from "../shared/api";
import { BarChart } from "../shared/bar_chart";
import { ErrorMessage, FactList, TimeSince } from "../shared/components";
import { Code } from "../shared/content/code";
import { formatNumber } from "../shared/format";
import type { Agent, Card, WorkerAgent } from "../shared/messages";
import { Page } from "../shared/page";
import { usePolling } from "../shared/polling";
import { href } from "../shared/route";
import { hourHref, taskListHref, type AgentActivity } from "./agent_activity";
import { ActivityFigures, formatHour, outcomeSeries, PauseNote, PauseSwitch } from "./agent_components";

interface AgentPageProps {
  agent: Agent;
  /** Absent for callers without the grant. */
  activity: AgentActivity | undefined;
  workers: WorkerAgent | undefined;
  refresh: () => void;
}

export function AgentPage({ agent, activity, workers, refresh }: AgentPageProps) {
  const path = `${encodeSegment(agent.id)}/.well-known/agent-card.json`;
  const { value: card, error } = usePolling((signal) => call<Card>(path, { signal }), 0, [agent.id]);
  return (
    <Page
      title={agent.name}
      actions={
        <div class="buttons">
          {activity && <PauseSwitch agent={activity} refresh={refresh} />}
          <a class="button" href={taskListHref(agent.id, "")}>
            Tasks
          </a>
          <a class="button primary" href={href(["new"], { agent: agent.id })}>
            New task
          </a>
        </div>
      }
    >
      <p>
        <a href="#/agents">Agents</a> <span class="faint">/</span> <code>{agent.id}</code> {agent.root && <span class="tag">root</span>}
      </p>
      <p class="faint">{agent.description}</p>
      <ErrorMessage error={error} />
      {activity && (
        <>
          <PauseNote activity={activity} />
          <ActivityFigures activity={activity} />
          <BarChart
            title="Tasks that ended, by hour"
            labels={activity.hours.map((hour) => formatHour(hour.start))}
            series={outcomeSeries(activity.hours)}
            unit={formatNumber}
            isInteger
            links={activity.hours.map((hour) => hourHref(hour, agent.id))}
          />
        </>
      )}
      {card && <Skills agent={agent.id} card={card} />}
      {workers && <Workers agent={workers} />}
      {card && <CardDetails agent={agent} card={card} />}
    </Page>
  );
}

function Skills({ agent, card }: { agent: string; card: Card }) {
  if (!card.skills?.length) return null;
  return (
    <section>
      <h3>Skills</h3>
      <ul class="skills">
        {card.skills.map((skill) => (
          <li key={skill.id}>
            <b>{skill.name}</b> <span class="faint">{skill.description}</span>
            {skill.examples && skill.examples.length > 0 && (
              <p>
                {skill.examples.map((example) => (
                  <a key={example} class="button example" title="Use this example" href={href(["new"], { agent, text: example })}>
                    {example}
                  </a>
                ))}
              </p>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Workers({ agent }: { agent: WorkerAgent }) {
  return (
    <section>
      <h3>Workers</h3>
      {agent.workers?.length ? (
        <div class="wide-table" tabIndex={0} role="region" aria-label="Workers">
          <table>
            <thead>
              <tr>
                <th scope="col">Name</th>
                <th scope="col">Address</th>
                <th scope="col">Running</th>
                <th scope="col">Free</th>
              </tr>
            </thead>
            <tbody>
              {agent.workers.map((row) => (
                <tr key={row.peer}>
                  <td>
                    {row.name} {row.draining && <span class="tag">draining</span>}
                  </td>
                  <td>{row.peer}</td>
                  <td>{row.running ?? 0}</td>
                  <td>{row.free ?? 0}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : (
        <p class="why">
          No worker is connected to this server; last seen <TimeSince time={agent.seen} suffix=" ago" />. Start one with <code>dragoman worker</code>.
        </p>
      )}
    </section>
  );
}

function CardDetails({ agent, card }: { agent: Agent; card: Card }) {
  const [open, setOpen] = useState(false);
  const features = card.capabilities ?? {};
  return (
    <section aria-label="Card">
      <h3>Card</h3>
      <FactList
        items={[
          ["version", card.version],
          ["provider", card.provider?.organization],
          ["input", card.defaultInputModes?.join(", ")],
          ["output", card.defaultOutputModes?.join(", ")],
          ["streaming", features.streaming ? "yes" : "no"],
          ["push", features.pushNotifications ? "yes" : "no"],
        ]}
      />
      <div class="wide-table" tabIndex={0} role="region" aria-label="Interfaces">
        <table>
          <caption>Interfaces</caption>
          <thead>
            <tr>
              <th scope="col">Binding</th>
              <th scope="col">Version</th>
              <th scope="col">URL</th>
            </tr>
          </thead>
          <tbody>
            {card.supportedInterfaces?.map((row, index) => (
              <tr key={index}>
                <td>{row.protocolBinding}</td>
                <td>{row.protocolVersion}</td>
                <td>
                  <code>{row.url}</code>
                  {row.tenant && <span class="faint"> tenant {row.tenant}</span>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <details onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>Card as JSON</summary>
        {open && <Code text={JSON.stringify(card, null, 2)} language="json" />}
      </details>
      <p class="faint">
        Served at <code>{agent.card}</code>
      </p>
    </section>
  );
}
