// The list of tasks: search, filters and states above it.

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { agents } from "../shared/agents";
import { accessToken, errorText } from "../shared/api";
import { ErrorMessage } from "../shared/components";
import { formatNumber, formatCount, plural } from "../shared/format";
import { EmptyState } from "../shared/page";
import { href, navigate, route, section, selectedTask, updateQuery } from "../shared/route";
import { canOperate } from "../shared/sign_in";
import { DEFAULT_SCOPE } from "../shared/tenant";
import {
  AGES,
  FILTER_NAMES,
  filterProblem,
  filtersOf,
  filterTexts,
  isFiltered,
  listHeading,
  ORDERS,
  parameters,
  STATE_TABS,
  TASK_ID,
  type FilterName,
  type Filters,
} from "./filters";
import { countInStates, PAGE_SIZE, rowsWithText, TaskListing, type LoadedTasks, type TaskRow } from "./listing";
import { canSelect, SelectionBar, useSelection } from "./selection";
import { findTenant } from "./task_finder";
import { TaskRows } from "./task_rows";

const SEARCH_DELAY_MS = 350; // milliseconds without a key press, until a text is searched

export function TaskList() {
  const query = route.value.query;
  const filters = filtersOf(query);
  const unknown = filterProblem(filters);
  const corrected = Object.entries(parameters(filters)).filter(([name, value]) => value !== (query.get(name) ?? ""));
  useEffect(() => {
    if (corrected.length) updateQuery(Object.fromEntries(corrected));
  }, [corrected.join()]);
  return unknown ? <UnknownFilter problem={unknown} /> : <FilteredList filters={filters} />;
}

/** For links whose filter has no meaning: no task is shown, because an action would be on others than those meant. */
function UnknownFilter({ problem }: { problem: string }) {
  return (
    <section class="list tasks" aria-label="Tasks">
      <EmptyState title="This link filters by a value that does not exist.">
        <p role="alert">{problem}</p>
        <button type="button" onClick={clearFilters}>
          Clear filters
        </button>
      </EmptyState>
    </section>
  );
}

function FilteredList({ filters }: { filters: Filters }) {
  const listing = useListing(filters);
  const loaded = listing.value.value;
  const allPrincipals = loaded?.allPrincipals ?? true;
  // Only operators and viewers search on the server; for others the loaded tasks are searched.
  const rows = loaded && !allPrincipals && filters.text ? rowsWithText(loaded.rows, filters.text) : (loaded?.rows ?? []);
  const selection = useSelection(filters, rows);
  const selectable = canSelect(loaded);
  const problem = useSignal("");
  useEffect(() => void (problem.value = ""), [route.value]);
  return (
    <section class="list tasks" aria-label="Tasks">
      <header class="finder">
        <div class="finder-head">
          <h2>{listHeading(filters)}</h2>
          <span class="link" data-link={listing.connection.value} role="status">
            {listing.connection.value === "lost" ? "connection lost, reconnecting" : listing.connection.value === "live" ? "live" : ""}
          </span>
        </div>
        <Search filters={filters} allPrincipals={allPrincipals} onError={(text) => (problem.value = text)} />
        <FilterFields filters={filters} loaded={loaded} />
        <ActiveFilters filters={filters} failure={failureOf(filters, rows)} />
        <StateTabs filters={filters} loaded={loaded} />
      </header>
      {selectable && loaded && (
        <SelectionBar selection={selection} rows={rows} filters={filters} loaded={loaded}>
          {filters.state === "FAILED" && canOperate.value && (
            <a href={href(["failures"], parameters({ ...filters, state: "", cause: "" }))}>Group by cause</a>
          )}
        </SelectionBar>
      )}
      <ErrorMessage error={problem.value || listing.error.value} />
      <div class="scroll" aria-busy={!loaded}>
        {rows.length > 0 && <TaskRows rows={rows} filters={filters} scopes={loaded?.scopes ?? []} allPrincipals={allPrincipals} selection={selectable ? selection : undefined} />}
        {loaded && rows.length === 0 && <NoTasks filters={filters} loaded={loaded} listing={listing} />}
        {loaded?.more && rows.length > 0 && (
          <p class="further">
            <button type="button" disabled={listing.loading.value} onClick={() => void listing.more()}>
              {listing.loading.value ? "Searching…" : `Show ${PAGE_SIZE} more`}
            </button>
          </p>
        )}
      </div>
      <footer aria-live="polite">{loaded && <Summary shown={rows.length} loaded={loaded} filters={filters} />}</footer>
    </section>
  );
}

function useListing(filters: Filters): TaskListing {
  const ids = (agents.value ?? []).map((agent) => agent.id).join();
  const searched = useRef(true);
  const applied = searched.current || TASK_ID.test(filters.text.trim()) ? filters : { ...filters, text: "" };
  const listing = useMemo(() => new TaskListing(applied, ids ? ids.split(",") : []), [JSON.stringify(applied), ids, accessToken.value]);
  // A text that the server does not search does not change what is requested.
  searched.current = listing.value.value?.allPrincipals ?? searched.current;
  useEffect(() => {
    listing.start();
    return () => listing.close();
  }, [listing]);
  return listing;
}

function Search({ filters, allPrincipals, onError: onError }: { filters: Filters; allPrincipals: boolean; onError: (text: string) => void }) {
  const [typed, setTyped] = useState(filters.text);
  const searched = useRef(filters.text); // by this field
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const search = (text: string) => {
    searched.current = text;
    updateQuery(parameters({ text }));
  };
  const onInput = (text: string) => {
    setTyped(text);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => search(text), SEARCH_DELAY_MS);
  };
  useEffect(() => {
    if (filters.text === searched.current) return; // keep what was typed since then
    clearTimeout(timer.current);
    searched.current = filters.text;
    setTyped(filters.text);
  }, [filters.text]);
  useEffect(() => () => clearTimeout(timer.current), []);
  /** Opens the task with this id; searches for any other text. */
  const submit = async (event: Event) => {
    event.preventDefault();
    clearTimeout(timer.current);
    const text = typed.trim();
    try {
      const tenant =
        text &&
        !/\s/.test(text) &&
        (await findTenant(
          text,
          (agents.value ?? []).map((agent) => agent.id),
        ));
      if (tenant) {
        setTyped("");
        navigate(["tasks", tenant, text], parameters({ ...filters, text: "" }));
      } else if (TASK_ID.test(text)) onError(`No visible task has the id ${text}. To find the tasks of a context, use the filter Context id.`);
      else search(typed);
    } catch (error) {
      onError(errorText(error));
    }
  };
  const placeholder = allPrincipals ? "Search requests, errors, questions, or paste a task id" : "Search the loaded tasks, or paste a task id";
  return (
    <form class="search" role="search" aria-label="Search tasks" onSubmit={(event) => void submit(event)}>
      <svg viewBox="0 0 20 20" aria-hidden="true">
        <path d="M9 3.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM13 13l4 4" />
      </svg>
      <input
        id="find"
        type="search"
        placeholder={placeholder}
        aria-label={`${placeholder}. Enter opens the task with this id`}
        value={typed}
        onInput={(event) => onInput(event.currentTarget.value)}
        onKeyDown={(event) => {
          const first = event.key === "ArrowDown" && document.querySelector<HTMLElement>(".list a.row");
          if (first) (event.preventDefault(), first.focus());
        }}
      />
      <kbd aria-hidden="true">/</kbd>
    </form>
  );
}

/** A select with the values that exist, and the chosen one, which may be another. */
function SelectFilter({
  label,
  name,
  value,
  options,
  none,
}: {
  label: string;
  name: FilterName;
  value: string;
  options: readonly (readonly [string, string])[];
  none: string;
}) {
  const all = !value || options.some(([id]) => id === value) ? options : [...options, [value, value] as const];
  return (
    <label>
      <span>{label}</span>
      <select aria-label={label} value={value} onChange={(event) => updateQuery(parameters({ [name]: event.currentTarget.value }))}>
        <option value="">{none}</option>
        {all.map(([id, text]) => (
          <option key={id} value={id}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

/** A text that is a filter once it is complete: on Enter, or when the field is left. */
function TextFilter({ label, name, value, hint }: { label: string; name: FilterName; value: string; hint: string }) {
  const [typed, setTyped] = useState(value); // kept while the list changes
  useEffect(() => setTyped(value), [value]);
  return (
    <label>
      <span>{label}</span>
      <input
        type="text"
        aria-label={label}
        placeholder={hint}
        spellcheck={false}
        autocomplete="off"
        value={typed}
        onInput={(event) => setTyped(event.currentTarget.value)}
        onChange={(event) => updateQuery(parameters({ [name]: event.currentTarget.value.trim() }))}
      />
    </label>
  );
}

function FilterFields({ filters, loaded }: { filters: Filters; loaded: LoadedTasks | undefined }) {
  const open = useSignal(false);
  const allPrincipals = loaded?.allPrincipals ?? true;
  const scopes = loaded?.scopes ?? [];
  const scoped = filters.scope !== "" || scopes.some((scope) => scope !== DEFAULT_SCOPE);
  const used = FILTER_NAMES.filter((name) => filters[name] && !["text", "state", "order"].includes(name)).length;
  return (
    <div class={open.value ? "filters open" : "filters"} role="group" aria-label="Filters">
      <SelectFilter
        label="Agent"
        name="agent"
        value={filters.agent}
        none="Any agent"
        options={(agents.value ?? []).map((agent) => [agent.id, agent.name])}
      />
      {allPrincipals && (
        <SelectFilter
          label="Changed"
          name="age"
          value={filters.age}
          none="Changed any time"
          options={AGES.map((age) => [age.id, `Changed ${age.name}`])}
        />
      )}
      <button type="button" class="toggle" aria-expanded={open.value} aria-controls="more-filters" onClick={() => (open.value = !open.value)}>
        {open.value ? "Fewer filters" : "Filters"}
        {used > 0 && <span class="badge">{used}</span>}
      </button>
      <div class="more" id="more-filters">
        {allPrincipals && <TextFilter label="Principal" name="principal" value={filters.principal} hint="Name" />}
        {scoped && <SelectFilter label="Scope" name="scope" value={filters.scope} none="Any scope" options={scopes.map((scope) => [scope, scope])} />}
        <TextFilter label="Context id" name="context" value={filters.context} hint="Of one conversation" />
        {allPrincipals && <TextFilter label="Metadata" name="metadata" value={filters.metadata} hint="KEY=VALUE, KEY=VALUE" />}
        {allPrincipals && (
          <SelectFilter
            label="Order"
            name="order"
            value={filters.order}
            none="Default order"
            options={ORDERS.map((order) => [order.id, order.name])}
          />
        )}
      </div>
    </div>
  );
}

/** With what the tasks of the filtered cause failed; empty if that is not known. */
function failureOf({ cause }: Filters, rows: readonly TaskRow[]): string {
  return (cause && rows[0]?.statusText) || "";
}

function ActiveFilters({ filters, failure }: { filters: Filters; failure: string }) {
  const active = filterTexts(filters, failure);
  if (active.length === 0) return null;
  return (
    <ul class="chips" aria-label="Active filters">
      {active.map(({ name, text }) => (
        <li key={name}>
          {text}
          <button type="button" class="plain" aria-label={`Remove the filter ${text}`} onClick={() => updateQuery(parameters({ [name]: "" }))}>
            ×
          </button>
        </li>
      ))}
      {active.length > 1 && (
        <li class="bare">
          <button type="button" class="plain" onClick={clearFilters}>
            Clear all
          </button>
        </li>
      )}
    </ul>
  );
}

function clearFilters(): void {
  updateQuery(parameters(Object.fromEntries(FILTER_NAMES.map((name) => [name, ""]))));
}

/** The states as tabs, with their numbers of tasks. They are links: each is a view of its own. */
function StateTabs({ filters, loaded }: { filters: Filters; loaded: LoadedTasks | undefined }) {
  const tabs = STATE_TABS.filter((tab) => tab.id !== "OPEN" || (loaded?.allPrincipals ?? true));
  const path = section.value === "tasks" ? route.value.path : ["tasks"];
  const others = Object.fromEntries(route.value.query);
  const bar = useRef<HTMLElement>(null);
  useEffect(() => bar.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [filters.state, selectedTask.value === null, loaded === undefined]);
  return (
    <nav class="states" aria-label="States" ref={bar}>
      {tabs.map((tab) => {
        const number = loaded?.counts && countInStates(loaded.counts, tab.states);
        return (
          <a
            key={tab.id}
            href={href(path, { ...others, ...parameters({ state: tab.id }) })}
            aria-current={filters.state === tab.id ? "true" : undefined}
            data-state={tab.id}
            data-none={number?.count === 0 ? "true" : undefined}
          >
            {tab.name}
            {number && <span class="count">{formatCount(number)}</span>}
          </a>
        );
      })}
    </nav>
  );
}

/** How many tasks are shown, and of how many. */
function Summary({ shown, loaded, filters }: { shown: number; loaded: LoadedTasks; filters: Filters }) {
  const { total, allPrincipals } = loaded;
  if (!allPrincipals && filters.text) {
    const searched = `${shown} of ${plural(loaded.rows.length, "loaded task")} match`;
    return <>{loaded.more ? `${searched}; ${formatNumber(total.count - loaded.rows.length)} more are not loaded` : searched}</>;
  }
  if (total.isMinimum && shown >= total.count) return <>{`${plural(shown, "task")} shown; there may be more`}</>;
  if (total.isMinimum) return <>{`${formatNumber(shown)} of more than ${plural(total.count, "task")} shown`}</>;
  return <>{shown < total.count ? `${formatNumber(shown)} of ${plural(total.count, "task")} shown` : plural(Math.max(total.count, shown), "task")}</>;
}

/** The reason for an empty list, and the next thing to do. */
function NoTasks({ filters, loaded, listing }: { filters: Filters; loaded: LoadedTasks; listing: TaskListing }) {
  const moreButton = (label: string) => (
    <button type="button" class="primary" disabled={listing.loading.value} onClick={() => void listing.more()}>
      {listing.loading.value ? "Searching…" : label}
    </button>
  );
  if (!isFiltered(filters)) {
    return (
      <EmptyState title="No tasks yet">
        <p>Every message to an agent starts a task. Send one here, or over A2A with any client:</p>
        <p>
          <code>dragoman send "Hello"</code>
        </p>
        <a class="button primary" href="#/new">
          New task
        </a>
      </EmptyState>
    );
  }
  const none = (title: string, children: ComponentChildren) => (
    <EmptyState title={title}>
      {children}
      <button type="button" onClick={clearFilters}>
        Clear filters
      </button>
    </EmptyState>
  );
  if (!loaded.allPrincipals && filters.text) {
    const searched = `Searched ${plural(loaded.rows.length, "loaded task")} of ${formatNumber(loaded.total.count)}.`;
    return none(`No loaded task has “${filters.text}”`, [
      <p key="searched">{searched} Enter opens the task with a whole id.</p>,
      loaded.more && moreButton("Load more tasks"),
    ]);
  }
  if (loaded.more)
    return none("No match so far", [<p key="searched">The newest tasks were searched; older ones were not.</p>, moreButton("Search older tasks")]);
  return none("No matching tasks", <p>{filters.text ? "All tasks were searched." : "Change or clear the filters."}</p>);
}
