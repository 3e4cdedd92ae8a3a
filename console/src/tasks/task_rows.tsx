// The rows of the task list: what was asked, its error or question beneath, and the facts beside them.

import { useRef } from "preact/hooks";
import { named } from "../shared/agents";
import { kept, type Filters } from "./filters";
import { nameOf, noteOf, type Row } from "./listing";
import { Ago, State } from "../shared/components";
import { chosen, href } from "../shared/route";
import { compact, cost as price, now, short, took } from "../shared/format";
import { DEFAULT_SCOPE, scopeOf } from "../shared/tenant";
import { isTerminal } from "../shared/messages";

interface Columns {
  principal: boolean;
  scope: boolean;
  tokens: boolean;
  cost: boolean;
}

export function Rows({ rows, filters, scopes, everyone }: { rows: readonly Row[]; filters: Filters; scopes: readonly string[]; everyone: boolean }) {
  const body = useRef<HTMLTableSectionElement>(null);
  const columns: Columns = {
    principal: everyone && (filters.principal !== "" || rows.some((row) => row.principal !== rows[0]?.principal)),
    scope: filters.scope !== "" || scopes.some((scope) => scope !== DEFAULT_SCOPE),
    tokens: rows.some((row) => row.tokens),
    cost: rows.some((row) => row.cost),
  };
  const step = (event: KeyboardEvent) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const links = [...(body.current?.querySelectorAll<HTMLElement>("a.row") ?? [])];
    const here = links.indexOf(document.activeElement as HTMLElement);
    const to = links[here + (event.key === "ArrowDown" ? 1 : -1)] ?? (here === 0 ? document.getElementById("find") : undefined);
    if (to) {
      event.preventDefault();
      to.focus();
    }
  };
  return (
    <table onKeyDown={step}>
      <thead>
        <tr>
          <th scope="col">State</th>
          <th scope="col">Task</th>
          <th scope="col">Agent</th>
          {columns.principal && <th scope="col">Principal</th>}
          {columns.scope && <th scope="col">Scope</th>}
          {columns.tokens && (
            <th scope="col" class="number">
              Tokens
            </th>
          )}
          {columns.cost && (
            <th scope="col" class="number">
              Cost
            </th>
          )}
          <th scope="col" class="number">
            Duration
          </th>
          <th scope="col" class="number">
            Changed
          </th>
          <th scope="col" class="number">
            Id
          </th>
        </tr>
      </thead>
      <tbody ref={body}>
        {rows.map((row) => (
          <Line key={nameOf(row)} row={row} columns={columns} />
        ))}
      </tbody>
    </table>
  );
}

function Line({ row, columns }: { row: Row; columns: Columns }) {
  const { tenant, task, principal, tokens, cost, changed } = row;
  const here = chosen.value?.id === task.id && chosen.value.tenant === tenant;
  const note = noteOf(row);
  const asked = row.summary || note || `Task ${short(task.id)}`;
  const scope = scopeOf(tenant);
  return (
    <tr aria-current={here ? "true" : undefined} data-state={task.status.state.replace("TASK_STATE_", "")}>
      <td class="of-state">
        <State state={task.status.state} />
      </td>
      <td class="what">
        <a class="row" href={href(["tasks", tenant, task.id], kept())} title={task.id}>
          {asked}
        </a>
        {note && note !== asked && (
          <span class="note" title={note}>
            {note}
          </span>
        )}
      </td>
      <td class="agent">{named(tenant)}</td>
      {columns.principal && (
        <td class="principal" title={principal}>
          {principal}
        </td>
      )}
      {columns.scope && (
        <td class="scope" title={scope}>
          {shortScope(scope)}
        </td>
      )}
      {columns.tokens && (
        <td class="number spent" title={tokens ? `${tokens} tokens` : undefined}>
          {tokens ? compact(tokens) : ""}
        </td>
      )}
      {columns.cost && (
        <td class="number spent" title={cost ? "in the currency of the agent" : undefined}>
          {cost ? price(cost) : ""}
        </td>
      )}
      <td class="number duration">
        <Duration row={row} />
      </td>
      <td class="number age">
        <Ago time={changed} />
      </td>
      <td class="number id">
        <code title={task.id}>{short(task.id)}</code>
      </td>
    </tr>
  );
}

/** From creation to the end, or until now. */
function Duration({ row: { created, changed, task } }: { row: Row }) {
  if (!created || !changed) return <span class="faint">–</span>;
  if (isTerminal(task.status.state)) return <>{took(Math.max(0, changed - created))}</>;
  return <span class="faint">{took(Math.floor(Math.max(0, now.value - created) / 1000) * 1000)}</span>;
}

/** The last names of a resource name: those before them are often the same. */
function shortScope(scope: string): string {
  return scope.length > 24 ? `…/${scope.split("/").slice(-3).join("/")}` : scope;
}
