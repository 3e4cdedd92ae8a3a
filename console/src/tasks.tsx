// The live list of tasks, filtered by state, agent, scope, conversation and id.

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { useAsked } from "./asking";
import { agents, named } from "./catalogue";
import { list, made, news, type Row } from "./listing";
import { lookUp } from "./looking";
import { Ago, Problem, State } from "./pieces";
import { chosen, go, href, place, refine, route } from "./route";
import { plural, short } from "./say";
import { words } from "./server";
import { DEFAULT_SCOPE, scopeOf } from "./tenant";
import { shown, STATES } from "./wire";

const EVERY = 2_000;
const STEP = 50;

export function Tasks() {
  const count = useSignal(STEP);
  const problem = useSignal("");
  const body = useRef<HTMLTableSectionElement>(null);
  const query = route.value.query;
  const filters = {
    scope: query.get("scope") ?? "",
    agent: query.get("agent") ?? "",
    state: query.get("state") ?? "",
    context: query.get("context") ?? "",
  };
  const text = query.get("id") ?? "";
  const ids = (agents.value ?? []).map((agent) => agent.id);
  const about = [ids.join(), filters.scope, filters.agent, filters.state, filters.context, count.value];
  const { value, error, again } = useAsked((stop) => list(ids, filters, count.value, stop), EVERY, about);
  useEffect(() => {
    if (news.value) again();
  }, [news.value]);
  const scopes = [...new Set([...(value?.scopes ?? []), ...(filters.scope ? [filters.scope] : [])])];
  const scoped = scopes.some((scope) => scope !== DEFAULT_SCOPE);
  const rows = (value?.rows ?? []).filter((row) => row.task.id.toLowerCase().includes(text.toLowerCase()));

  const open = async () => {
    problem.value = "";
    const only = rows.length === 1 ? rows[0] : undefined;
    try {
      const tenant = only?.tenant ?? (await lookUp(text.trim(), ids));
      if (tenant) go(["tasks", tenant, only?.task.id ?? text.trim()], kept());
      else problem.value = `No visible task has the id ${text}.`;
    } catch (failed) {
      problem.value = words(failed);
    }
  };

  const step = (event: KeyboardEvent) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const links = [...(body.current?.querySelectorAll<HTMLElement>("a.row") ?? [])];
    const to = links[links.indexOf(document.activeElement as HTMLElement) + (event.key === "ArrowDown" ? 1 : -1)];
    if (to) {
      event.preventDefault();
      to.focus();
    }
  };

  return (
    <section class="list" aria-label="Tasks">
      <form class="filters" role="search" aria-label="Filter tasks" onSubmit={(event) => event.preventDefault()}>
        <input
          id="find"
          type="search"
          placeholder="Task id  ( / )"
          aria-label="Task id or a part of it; Enter opens the task"
          value={text}
          onInput={(event) => refine({ id: event.currentTarget.value })}
          onKeyDown={(event) => event.key === "Enter" && void open()}
        />
        <select aria-label="State" value={filters.state} onChange={(event) => refine({ state: event.currentTarget.value })}>
          <option value="">any state</option>
          {STATES.map((state) => (
            <option key={state} value={state}>
              {shown(state)}
            </option>
          ))}
        </select>
        <select aria-label="Agent" value={filters.agent} onChange={(event) => refine({ agent: event.currentTarget.value })}>
          <option value="">any agent</option>
          {agents.value?.map((agent) => (
            <option key={agent.id} value={agent.id}>
              {agent.name}
            </option>
          ))}
        </select>
        {scoped && (
          <select aria-label="Scope" value={filters.scope} onChange={(event) => refine({ scope: event.currentTarget.value })}>
            <option value="">any scope</option>
            {scopes.map((scope) => (
              <option key={scope} value={scope}>
                {scope}
              </option>
            ))}
          </select>
        )}
        <input
          type="search"
          placeholder="Context id"
          aria-label="Context id"
          value={filters.context}
          onInput={(event) => refine({ context: event.currentTarget.value.trim() })}
        />
      </form>
      <Problem error={problem.value || error} />
      <div class="scroll" onKeyDown={step}>
        <table>
          <thead>
            <tr>
              <th scope="col">State</th>
              <th scope="col">Task</th>
              <th scope="col" class="agent">
                Agent
              </th>
              {scoped && (
                <th scope="col" class="scope">
                  Scope
                </th>
              )}
              <th scope="col" class="age">
                Created
              </th>
              <th scope="col" class="age">
                Changed
              </th>
            </tr>
          </thead>
          <tbody ref={body}>
            {rows.map((row) => (
              <Line key={`${row.tenant}/${row.task.id}`} row={row} scoped={scoped} />
            ))}
          </tbody>
        </table>
        {value && rows.length === 0 && (
          <p class="empty">{text || filters.state || filters.context || filters.agent || filters.scope ? "No matching tasks." : "No tasks yet."}</p>
        )}
        {value?.more && (
          <p class="empty">
            <button type="button" onClick={() => (count.value += STEP)}>
              Show {STEP} more
            </button>
          </p>
        )}
      </div>
      <footer aria-live="polite">
        {value && (text ? `${rows.length} of ${plural(value.rows.length, "loaded task")} match` : plural(value.total, "task"))}
      </footer>
    </section>
  );
}

/** The filters as query parameters for the next view. */
export function kept(): Record<string, string> {
  const query = route.value.query;
  const names = place.value === "tasks" ? ["scope", "agent", "state", "context", "id"] : [];
  return Object.fromEntries(names.map((name) => [name, query.get(name) ?? ""]));
}

function Line({ row: { tenant, task }, scoped }: { row: Row; scoped: boolean }) {
  const here = chosen.value?.id === task.id && chosen.value.tenant === tenant;
  return (
    <tr aria-current={here ? "true" : undefined}>
      <td>
        <State state={task.status.state} />
      </td>
      <td>
        <a class="row" href={href(["tasks", tenant, task.id], kept())} title={task.id}>
          <code>{short(task.id)}</code>
        </a>
      </td>
      <td class="agent">{named(tenant)}</td>
      {scoped && (
        <td class="scope" title={scopeOf(tenant)}>
          {scopeOf(tenant)}
        </td>
      )}
      <td class="age">
        <Ago time={made(task.id)} />
      </td>
      <td class="age">
        <Ago time={task.status.timestamp} />
      </td>
    </tr>
  );
}
