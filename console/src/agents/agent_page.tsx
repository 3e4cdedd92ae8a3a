// One agent: what it does now, its skills, workers and card.

import { useState } from "preact/hooks";
import { Figures, hourText, outcomes, PauseNote, PauseSwitch, TurnTime } from "./agent_components";
import { useAsked } from "../shared/polling";
import { Bars } from "../shared/bar_chart";
import { Code } from "../shared/content/code";
import type { Numbers } from "../shared/metrics";
import { tasksOf, type AgentNow } from "./agent_activity";
import { Page } from "../shared/page";
import { Ago, Facts, Problem } from "../shared/components";
import { href } from "../shared/route";
import { count } from "../shared/format";
import { call, segment } from "../shared/api";
import type { Agent, Card, WorkerAgent } from "../shared/messages";

interface Shown {
  agent: Agent;
  /** Absent for callers without the grant. */
  now: AgentNow | undefined;
  numbers: Numbers | undefined;
  workers: WorkerAgent | undefined;
  again: () => void;
}

export function AgentPage({ agent, now, numbers, workers, again }: Shown) {
  const path = `${segment(agent.id)}/.well-known/agent-card.json`;
  const { value: card, error } = useAsked((signal) => call<Card>(path, { signal }), 0, [agent.id]);
  return (
    <Page
      title={agent.name}
      actions={
        <div class="buttons">
          {now && <PauseSwitch agent={now} again={again} />}
          <a class="button" href={tasksOf(agent.id, "")}>
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
      <Problem error={error} />
      {now && (
        <>
          <PauseNote now={now} />
          <Figures now={now} numbers={numbers} />
          <Bars
            title="Tasks that ended, by hour"
            labels={now.hours.map((one) => hourText(one.at))}
            series={outcomes(now.hours)}
            unit={count}
            whole
          />
          <p class="faint">
            A turn took <TurnTime hours={now.hours} /> on average.
          </p>
        </>
      )}
      {card && <Skills agent={agent.id} card={card} />}
      {workers && <Workers of={workers} />}
      {card && <About agent={agent} card={card} />}
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

function Workers({ of }: { of: WorkerAgent }) {
  return (
    <section>
      <h3>Workers</h3>
      {of.workers?.length ? (
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
              {of.workers.map((one) => (
                <tr key={one.peer}>
                  <td>
                    {one.name} {one.draining && <span class="tag">draining</span>}
                  </td>
                  <td>{one.peer}</td>
                  <td>{one.running ?? 0}</td>
                  <td>{one.free ?? 0}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : (
        <p class="why">
          No worker is connected to this server; last seen <Ago time={of.seen} after=" ago" />. Start one with <code>dragoman worker</code>.
        </p>
      )}
    </section>
  );
}

function About({ agent, card }: { agent: Agent; card: Card }) {
  const [open, setOpen] = useState(false);
  const features = card.capabilities ?? {};
  return (
    <section aria-label="Card">
      <h3>Card</h3>
      <Facts
        of={[
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
            {card.supportedInterfaces?.map((one, index) => (
              <tr key={index}>
                <td>{one.protocolBinding}</td>
                <td>{one.protocolVersion}</td>
                <td>
                  <code>{one.url}</code>
                  {one.tenant && <span class="faint"> tenant {one.tenant}</span>}
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
