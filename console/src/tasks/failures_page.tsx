// Failed tasks by what failed: how many, since when, where it was raised, and a rerun for each group.

import { useState } from "preact/hooks";
import { agentName } from "../shared/agents";
import { call } from "../shared/api";
import { ErrorMessage, FailureText, TimeSince, Zero } from "../shared/components";
import { formatCount, formatNumber, plural, shortId } from "../shared/format";
import { failureTitle, type FailureGroup, type FailureReruns } from "../shared/messages";
import { AccessError, EmptyState, isAccessError, Page, useKnownQuery } from "../shared/page";
import { usePolling } from "../shared/polling";
import { href, route, updateQuery } from "../shared/route";
import { RerunFailed } from "./bulk_actions";
import { AGES, filtersOf, filterTexts, listRequest, parameters, type Filters } from "./filters";
import type { TaskCount } from "./listing";

/** Each call is audited. */
const POLL_INTERVAL_MS = 30_000;
const MAX_GROUPS = 100;
/** Characters of a failure that its row shows in most windows; a longer one is repeated in full below the row. */
const MAX_TITLE_LENGTH = 48;

const SORTS = [
  { id: "", name: "Most tasks first" },
  { id: "last", name: "Last failed first" },
] as const;

interface Failures {
  groups?: FailureGroup[];
  more?: boolean;
}

async function readFailures(filters: Filters, signal: AbortSignal): Promise<Failures> {
  const { order: _, ...request } = listRequest({ ...filters, state: "FAILED" }, true, Date.now());
  const query = Object.entries(request).flatMap(([name, value]) => [value].flat().map((one) => [`filter.${name}`, one]));
  return call<Failures>(`operations/failures?${new URLSearchParams([...query, ["limit", String(MAX_GROUPS)]])}`, { signal });
}

export function FailuresPage() {
  const filters = filtersOf(route.value.query);
  const sort = route.value.query.get("sort") ?? "";
  useKnownQuery("sort", ["last"]);
  const { value, error, refresh } = usePolling((signal) => readFailures(filters, signal), POLL_INTERVAL_MS, [JSON.stringify(filters)]);
  const found = value?.groups ?? [];
  const groups = sort === "last" ? found.toSorted((one, other) => Date.parse(other.last) - Date.parse(one.last)) : found;
  return (
    <Page title="Failures" actions={<Filter filters={filters} sort={sort} groups={groups} />}>
      {isAccessError(error) ? <AccessError error={error} subject="why tasks failed" /> : <ErrorMessage error={error} />}
      {value && groups.length === 0 && (
        <EmptyState title="No task failed.">
          <p>Failed tasks are grouped here by the exception and the function that raised it.</p>
        </EmptyState>
      )}
      {groups.length > 0 && (
        <div class="wide-table" tabIndex={0} role="region" aria-label="Table of failures">
          {/* The roles are those of the elements. Some browsers forget them in the narrow layout. */}
          <table role="table" class="figures groups stacked">
            <thead role="rowgroup">
              <tr role="row">
                {COLUMNS.map((name) => (
                  <th key={name} scope="col" role="columnheader">
                    {name}
                  </th>
                ))}
                <th scope="col" role="columnheader">
                  <span class="hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody role="rowgroup">
              {groups.map((group) => (
                <GroupRow key={group.cause} group={group} filters={filters} opens={filters.cause !== ""} refresh={refresh} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {value?.more && <p class="faint">There are more groups than these.</p>}
    </Page>
  );
}

const COLUMNS = ["Cause", "Tasks", "Rerun", "Agent", "First", "Last", "Last task"] as const;

function Filter({ filters, sort, groups }: { filters: Filters; sort: string; groups: readonly FailureGroup[] }) {
  const failure = groups[0] && failureTitle(groups[0].failure);
  return (
    <>
      {filterTexts(filters, failure)
        .filter(({ name }) => name !== "age")
        .map(({ name, text }) => (
          <span key={name} class="chip">
            {text}{" "}
            <button type="button" class="plain" aria-label={`Remove the filter ${text}`} onClick={() => updateQuery(parameters({ [name]: "" }))}>
              ×
            </button>
          </span>
        ))}
      <select aria-label="Failed" value={filters.age} onChange={(event) => updateQuery(parameters({ age: event.currentTarget.value }))}>
        <option value="">Failed any time</option>
        {AGES.filter((age) => age.since).map((age) => (
          <option key={age.id} value={age.id}>
            Failed {age.name}
          </option>
        ))}
      </select>
      <select aria-label="Order" value={sort} onChange={(event) => updateQuery({ sort: event.currentTarget.value })}>
        {SORTS.map(({ id, name }) => (
          <option key={id} value={id}>
            {name}
          </option>
        ))}
      </select>
    </>
  );
}

interface GroupRowProps {
  group: FailureGroup;
  filters: Filters;
  /** Whether it shows at first where the exception was raised. */
  opens: boolean;
  refresh: () => void;
}

function GroupRow({ group, filters, opens, refresh }: GroupRowProps) {
  const [isOpen, setIsOpen] = useState(opens);
  const { failure, agent, reruns } = group;
  const number = { count: Number(group.count), isMinimum: group.countIsMinimum ?? false };
  const tasks = { ...filters, agent, cause: group.cause, state: "FAILED" };
  const tasksHref = href(["tasks"], parameters(tasks));
  const frame = failure.frames?.at(-1);
  const place = frame && `${frame.file.split("/").at(-1)}:${frame.line} in ${frame.function}`;
  return (
    <>
      <tr role="row" class={isOpen ? "followed" : undefined}>
        <th scope="row" role="rowheader">
          <button type="button" class="plain opener" aria-expanded={isOpen} title={failureTitle(failure)} onClick={() => setIsOpen(!isOpen)}>
            {failureTitle(failure)}
          </button>
          <small>{[place, failure.step && `step ${failure.step}`].filter(Boolean).join(" · ") || "no function of the author's code"}</small>
        </th>
        <td role="cell" data-label="Tasks">
          <a href={tasksHref} title="See the tasks">
            {formatCount(number)}
          </a>
        </td>
        <td role="cell" data-label="Rerun">
          <Reruns reruns={reruns} number={number} last={group.last} />
        </td>
        <td role="cell" data-label="Agent">
          {agentName(agent)}
        </td>
        <td role="cell" data-label="First">
          <TimeSince time={group.first} suffix=" ago" />
        </td>
        <td role="cell" data-label="Last">
          <TimeSince time={group.last} suffix=" ago" />
        </td>
        <td role="cell" data-label="Last task">
          <a href={href(["tasks", group.taskId], parameters(tasks))} title={group.taskId}>
            <code>{shortId(group.taskId)}</code>
          </a>
        </td>
        <td role="cell">
          <RerunFailed filters={tasks} number={number} failure={failureTitle(failure)} onClose={refresh} />
        </td>
      </tr>
      {isOpen && (
        <tr role="row" class="contents failure">
          <td role="cell" colSpan={COLUMNS.length + 1}>
            {failureTitle(failure).length > MAX_TITLE_LENGTH && <h3>{failureTitle(failure)}</h3>}
            <p>
              <a href={tasksHref}>See the {number.count === 1 ? "task" : `${formatCount(number)} tasks`}</a>
              {reruns?.count && <RerunText reruns={reruns} last={group.last} />}
            </p>
            <FailureText failure={failure} />
          </td>
        </tr>
      )}
    </>
  );
}

/** `10 of 10`, and since when; or that tasks have failed since then. */
function Reruns({ reruns, number, last }: { reruns?: FailureReruns; number: TaskCount; last: string }) {
  if (!reruns?.count) return <Zero>–</Zero>;
  const count = Number(reruns.count);
  return (
    <span title={`Rerun by ${reruns.principal}`}>
      {count > number.count ? formatNumber(count) : `${formatNumber(count)} of ${formatCount(number)}`}
      <small class={failedSince(reruns, last) ? "why" : undefined}>
        {failedSince(reruns, last) ? "failed since" : <TimeSince time={reruns.last} suffix=" ago" />}
      </small>
    </span>
  );
}

function RerunText({ reruns, last }: { reruns: FailureReruns; last: string }) {
  return (
    <span class="faint">
      {" · "}
      {plural(Number(reruns.count), "task")} rerun, last <TimeSince time={reruns.last} suffix=" ago" />
      {reruns.principal && ` by ${reruns.principal}`}
      {failedSince(reruns, last) ? "; the cause is still there: tasks have failed since" : "; none has failed since"}
    </span>
  );
}

function failedSince(reruns: FailureReruns, last: string): boolean {
  return Date.parse(last) > Date.parse(reruns.last ?? "");
}
