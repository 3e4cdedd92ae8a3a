// The rows of the task list: the request, its error or question beneath, and facts beside them.

import { useEffect, useRef } from "preact/hooks";
import { agentName } from "../shared/agents";
import { StateLabel, TimeSince } from "../shared/components";
import { formatCompact, formatCost as price, formatDuration, now, shortId, withoutMarkdown } from "../shared/format";
import { isTerminal } from "../shared/messages";
import { href, selectedTask } from "../shared/route";
import { DEFAULT_SCOPE, scopeOf } from "../shared/tenant";
import { filterQuery, type Filters } from "./filters";
import { rowKey, statusTextOf, type TaskRow } from "./listing";
import type { Selection } from "./selection";

interface Columns {
  principal: boolean;
  scope: boolean;
  tokens: boolean;
  cost: boolean;
}

export function TaskRows({
  rows,
  filters,
  scopes,
  allPrincipals,
  selection,
}: {
  rows: readonly TaskRow[];
  filters: Filters;
  scopes: readonly string[];
  allPrincipals: boolean;
  /** Undefined for callers who cannot act on several tasks. */
  selection: Selection | undefined;
}) {
  const body = useRef<HTMLTableSectionElement>(null);
  const columns: Columns = {
    principal: allPrincipals && (filters.principal !== "" || rows.some((row) => row.principal !== rows[0]?.principal)),
    scope: filters.scope !== "" || scopes.some((scope) => scope !== DEFAULT_SCOPE),
    tokens: rows.some((row) => row.tokens),
    cost: rows.some((row) => row.cost),
  };
  const moveFocus = (event: KeyboardEvent) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const links = [...(body.current?.querySelectorAll<HTMLElement>("a.row") ?? [])];
    const index = links.indexOf(document.activeElement as HTMLElement);
    const next = links[index + (event.key === "ArrowDown" ? 1 : -1)] ?? (index === 0 ? document.getElementById("find") : undefined);
    if (next) {
      event.preventDefault();
      next.focus();
    }
  };
  return (
    <table class={selection?.rows.length ? "selecting" : undefined} onKeyDown={moveFocus}>
      <thead>
        <tr>
          {selection && (
            <th scope="col">
              <span class="hidden">Selected</span>
            </th>
          )}
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
        </tr>
      </thead>
      <tbody ref={body}>
        {rows.map((row) => (
          <TaskTableRow key={rowKey(row)} row={row} columns={columns} selection={selection} />
        ))}
      </tbody>
    </table>
  );
}

function TaskTableRow({ row, columns, selection }: { row: TaskRow; columns: Columns; selection: Selection | undefined }) {
  const { tenant, task, principal, tokens, cost, changed } = row;
  const selected = selectedTask.value?.id === task.id && selectedTask.value.tenant === tenant;
  const note = withoutMarkdown(statusTextOf(row));
  const title = withoutMarkdown(row.summary) || note || `Task ${shortId(task.id)}`;
  const scope = scopeOf(tenant);
  const element = useRef<HTMLTableRowElement>(null);
  useEffect(() => void (selected && element.current?.scrollIntoView({ block: "nearest" })), [selected]);
  return (
    <tr ref={element} aria-current={selected ? "true" : undefined} data-state={task.status.state.replace("TASK_STATE_", "")}>
      {selection && (
        <td class="check">
          <input type="checkbox" aria-label={`Select ${title}`} checked={selection.has(row)} onChange={() => selection.toggle(row)} />
        </td>
      )}
      <td class="of-state">
        <StateLabel state={task.status.state} />
      </td>
      <td class="what">
        <a class="row" href={href(["tasks", tenant, task.id], filterQuery())} title={task.id}>
          {title}
        </a>
        {note && note !== title && (
          <span class="note" title={note}>
            {note}
          </span>
        )}
        <code class="id" aria-hidden="true">
          {shortId(task.id)}
        </code>
      </td>
      <td class="agent">{agentName(tenant)}</td>
      {columns.principal && (
        <td class="principal" title={principal}>
          {principal}
        </td>
      )}
      {columns.scope && (
        <td class="scope" title={scope}>
          {shortenScope(scope)}
        </td>
      )}
      {columns.tokens && (
        <td class="number spent" title={tokens ? `${tokens} tokens` : undefined}>
          {tokens ? formatCompact(tokens) : ""}
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
        <TimeSince time={changed} />
      </td>
    </tr>
  );
}

/** From creation to the end, or until now. */
function Duration({ row: { created, changed, task } }: { row: TaskRow }) {
  if (!created || !changed) return <span class="faint">–</span>;
  if (isTerminal(task.status.state)) return <>{formatDuration(Math.max(0, changed - created))}</>;
  return <span class="faint">{formatDuration(Math.floor(Math.max(0, now.value - created) / 1000) * 1000)}</span>;
}

/** The last names of a resource name: those before them are often the same. */
function shortenScope(scope: string): string {
  return scope.length > 24 ? `…/${scope.split("/").slice(-3).join("/")}` : scope;
}
