// The agents and their cards; for operators also their workers.

import { useAsked } from "./asking";
import { agents, unreachable } from "./catalogue";
import { Code } from "./code";
import { useTitle } from "./page";
import { Ago, Facts, Problem } from "./pieces";
import { href, route } from "./route";
import { plural } from "./say";
import { call, Failure, segment } from "./server";
import type { Agent, Card, WorkerAgent } from "./wire";

export function Agents() {
  const known = agents.value ?? [];
  const asked = route.value.path[1];
  const agent = known.find((one) => one.id === asked) ?? known[0];
  useTitle(asked && agent ? agent.name : "Agents");
  return (
    <div class={asked ? "split chosen" : "split"}>
      <section class="list" aria-label="Agents">
        <Problem error={unreachable.value} />
        <ul class="agents">
          {known.map((one) => (
            <li key={one.id} aria-current={one === agent ? "true" : undefined}>
              <a class="row" href={href(["agents", one.id])}>
                {one.name}
              </a>{" "}
              <code class="faint">{one.id}</code> {one.root && <span class="tag">root</span>}
              <p class="faint">{one.description}</p>
            </li>
          ))}
        </ul>
        <footer>{plural(known.length, "agent")}</footer>
      </section>
      <div class="detail">{agent && <Shown key={agent.id} agent={agent} />}</div>
    </div>
  );
}

function Shown({ agent }: { agent: Agent }) {
  const path = `${segment(agent.id)}/.well-known/agent-card.json`;
  const { value: card, error } = useAsked((signal) => call<Card>(path, { signal }), 0, [agent.id]);
  const features = card?.capabilities ?? {};
  return (
    <article class="agent-card" aria-label={agent.name}>
      <header class="head">
        <a class="back" href="#/agents">
          ‹ Agents
        </a>
        <h2>{agent.name}</h2>
        <a class="button" href={href(["new"], { agent: agent.id })}>
          New task
        </a>
        <a class="button" href={href(["tasks"], { agent: agent.id })}>
          Tasks
        </a>
      </header>
      <Problem error={error} />
      {card && (
        <div class="panel" tabIndex={0} role="region" aria-label="Card">
          <p>{card.description}</p>
          <Facts
            of={[
              ["id", agent.id],
              ["version", card.version],
              ["provider", card.provider?.organization],
              ["input", card.defaultInputModes?.join(", ")],
              ["output", card.defaultOutputModes?.join(", ")],
              ["streaming", features.streaming ? "yes" : "no"],
              ["push", features.pushNotifications ? "yes" : "no"],
            ]}
          />
          <Skills agent={agent.id} card={card} />
          <h3>Interfaces</h3>
          <table>
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
          <Workers agent={agent.id} />
          <details>
            <summary>Card as JSON</summary>
            <Code text={JSON.stringify(card, null, 2)} language="json" />
          </details>
        </div>
      )}
    </article>
  );
}

function Skills({ agent, card }: { agent: string; card: Card }) {
  if (!card.skills?.length) return null;
  return (
    <>
      <h3>Skills</h3>
      <ul class="skills">
        {card.skills.map((skill) => (
          <li key={skill.id}>
            <b>{skill.name}</b> <span class="faint">{skill.description}</span>
            {skill.examples?.map((example) => (
              <a key={example} class="example" title="Use this example" href={href(["new"], { agent, text: example })}>
                {example}
              </a>
            ))}
          </li>
        ))}
      </ul>
    </>
  );
}

function Workers({ agent }: { agent: string }) {
  const { value, error } = useAsked((signal) => call<{ agents?: WorkerAgent[] }>("operations/workers", { signal }), 5_000, [agent]);
  const own = value?.agents?.find((one) => one.agent === agent);
  const refused = error instanceof Failure && [401, 403].includes(error.status);
  if (!own) return refused ? null : <Problem error={error} />;
  return (
    <>
      <h3>Workers</h3>
      {!own.workers?.length && (
        <p class="faint">
          No worker is connected to this server; last seen <Ago time={own.seen} after=" ago" />.
        </p>
      )}
      {own.workers && own.workers.length > 0 && (
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
            {own.workers.map((one) => (
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
      )}
    </>
  );
}
