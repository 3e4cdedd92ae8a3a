// The list of tasks: search, filters and states above it.

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Bulk } from "./bulk_actions";
import { agents } from "../shared/agents";
import { AGES, chips, filtersOf, heading, isFiltered, NAMES, parameters, TABS, WHOLE_ID, type FilterName, type Filters } from "./filters";
import { Listing, matching, numberOf, PAGE, type Listed } from "./listing";
import { lookUp } from "./task_finder";
import { Empty } from "../shared/page";
import { Problem } from "../shared/components";
import { go, href, place, refine, route } from "../shared/route";
import { amount, count, plural } from "../shared/format";
import { key, words } from "../shared/api";
import { Rows } from "./task_rows";
import { DEFAULT_SCOPE } from "../shared/tenant";

const TYPING = 350; // milliseconds without a key press, until a text is searched

export function Tasks() {
  const filters = filtersOf(route.value.query);
  const listing = useListing(filters);
  const listed = listing.value.value;
  const everyone = listed?.everyone ?? true;
  // Only operators and viewers search on the server; for others the loaded tasks are searched.
  const rows = listed && !everyone && filters.text ? matching(listed.rows, filters.text) : (listed?.rows ?? []);
  const problem = useSignal("");
  useEffect(() => void (problem.value = ""), [route.value]);
  return (
    <section class="list tasks" aria-label="Tasks">
      <header class="finder">
        <div class="finder-head">
          <h2>{heading(filters)}</h2>
          <span class="link" data-link={listing.link.value} role="status">
            {listing.link.value === "lost" ? "connection lost, reconnecting" : listing.link.value === "live" ? "live" : ""}
          </span>
        </div>
        <Search filters={filters} everyone={everyone} fail={(text) => (problem.value = text)} />
        <Fields filters={filters} listed={listed} />
        <Chips filters={filters} />
        <States filters={filters} listed={listed} />
      </header>
      {everyone && listed && isFiltered(filters) && <Bulk key={JSON.stringify(filters)} filters={filters} listed={listed} />}
      <Problem error={problem.value || listing.error.value} />
      <div class="scroll" aria-busy={!listed}>
        {rows.length > 0 && <Rows rows={rows} filters={filters} scopes={listed?.scopes ?? []} everyone={everyone} />}
        {listed && rows.length === 0 && <None filters={filters} listed={listed} listing={listing} />}
        {listed?.more && rows.length > 0 && (
          <p class="further">
            <button type="button" disabled={listing.reading.value} onClick={() => void listing.more()}>
              {listing.reading.value ? "Searching…" : `Show ${PAGE} more`}
            </button>
          </p>
        )}
      </div>
      <footer aria-live="polite">{listed && <Summary shown={rows.length} listed={listed} filters={filters} />}</footer>
    </section>
  );
}

function useListing(filters: Filters): Listing {
  const ids = (agents.value ?? []).map((agent) => agent.id).join();
  const searched = useRef(true);
  const asked = searched.current || WHOLE_ID.test(filters.text.trim()) ? filters : { ...filters, text: "" };
  const listing = useMemo(() => new Listing(asked, ids ? ids.split(",") : []), [JSON.stringify(asked), ids, key.value]);
  // A text that the server does not search does not change what is requested.
  searched.current = listing.value.value?.everyone ?? searched.current;
  useEffect(() => {
    listing.start();
    return () => listing.close();
  }, [listing]);
  return listing;
}

function Search({ filters, everyone, fail }: { filters: Filters; everyone: boolean; fail: (text: string) => void }) {
  const [typed, setTyped] = useState(filters.text);
  const searched = useRef(filters.text); // by this field
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const search = (text: string) => {
    searched.current = text;
    refine(parameters({ text }));
  };
  const type = (text: string) => {
    setTyped(text);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => search(text), TYPING);
  };
  useEffect(() => {
    if (filters.text === searched.current) return; // what was typed since then stays
    clearTimeout(timer.current);
    searched.current = filters.text;
    setTyped(filters.text);
  }, [filters.text]);
  useEffect(() => () => clearTimeout(timer.current), []);
  /** Opens the task with this id; searches for any other text. */
  const enter = async (event: Event) => {
    event.preventDefault();
    clearTimeout(timer.current);
    const text = typed.trim();
    try {
      const tenant = text && !/\s/.test(text) && (await lookUp(text, (agents.value ?? []).map((agent) => agent.id)));
      if (tenant) {
        setTyped("");
        go(["tasks", tenant, text], parameters({ ...filters, text: "" }));
      } else if (WHOLE_ID.test(text)) fail(`No visible task has the id ${text}. To find the tasks of a context, use the filter Context id.`);
      else search(typed);
    } catch (failed) {
      fail(words(failed));
    }
  };
  const what = everyone ? "Search requests, errors, questions, or paste a task id" : "Search the loaded tasks, or paste a task id";
  return (
    <form class="search" role="search" aria-label="Search tasks" onSubmit={(event) => void enter(event)}>
      <svg viewBox="0 0 20 20" aria-hidden="true">
        <path d="M9 3.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM13 13l4 4" />
      </svg>
      <input
        id="find"
        type="search"
        placeholder={what}
        aria-label={`${what}. Enter opens the task with this id`}
        value={typed}
        onInput={(event) => type(event.currentTarget.value)}
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
function Choice({ label, name, value, options, none }: { label: string; name: FilterName; value: string; options: readonly (readonly [string, string])[]; none: string }) {
  const all = !value || options.some(([id]) => id === value) ? options : [...options, [value, value] as const];
  return (
    <label>
      <span>{label}</span>
      <select aria-label={label} value={value} onChange={(event) => refine(parameters({ [name]: event.currentTarget.value }))}>
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
function Text({ label, name, value, hint }: { label: string; name: FilterName; value: string; hint: string }) {
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
        onChange={(event) => refine(parameters({ [name]: event.currentTarget.value.trim() }))}
      />
    </label>
  );
}

function Fields({ filters, listed }: { filters: Filters; listed: Listed | undefined }) {
  const open = useSignal(false);
  const everyone = listed?.everyone ?? true;
  const scopes = listed?.scopes ?? [];
  const scoped = filters.scope !== "" || scopes.some((scope) => scope !== DEFAULT_SCOPE);
  const used = NAMES.filter((name) => filters[name] && !["text", "state", "order"].includes(name)).length;
  return (
    <div class={open.value ? "filters open" : "filters"} role="group" aria-label="Filters">
      <Choice label="Agent" name="agent" value={filters.agent} none="Any agent" options={(agents.value ?? []).map((agent) => [agent.id, agent.name])} />
      {everyone && <Choice label="Changed" name="age" value={filters.age} none="Changed any time" options={AGES.map((age) => [age.id, `Changed ${age.name}`])} />}
      <button type="button" class="toggle" aria-expanded={open.value} aria-controls="more-filters" onClick={() => (open.value = !open.value)}>
        {open.value ? "Fewer filters" : "Filters"}
        {used > 0 && <span class="badge">{used}</span>}
      </button>
      <div class="more" id="more-filters">
        {everyone && <Text label="Principal" name="principal" value={filters.principal} hint="Name" />}
        {scoped && <Choice label="Scope" name="scope" value={filters.scope} none="Any scope" options={scopes.map((scope) => [scope, scope])} />}
        <Text label="Context id" name="context" value={filters.context} hint="Of one conversation" />
        {everyone && <Text label="Metadata" name="metadata" value={filters.metadata} hint="KEY=VALUE, KEY=VALUE" />}
        {everyone && (
          <Choice
            label="Order"
            name="order"
            value={filters.order}
            none="Default order"
            options={[
              ["changed", "Last changed first"],
              ["created", "Newest first"],
            ]}
          />
        )}
      </div>
    </div>
  );
}

function Chips({ filters }: { filters: Filters }) {
  const active = chips(filters);
  if (active.length === 0) return null;
  return (
    <ul class="chips" aria-label="Active filters">
      {active.map(({ name, text }) => (
        <li key={name}>
          {text}
          <button type="button" class="plain" aria-label={`Remove the filter ${text}`} onClick={() => refine(parameters({ [name]: "" }))}>
            ×
          </button>
        </li>
      ))}
      {active.length > 1 && (
        <li class="bare">
          <button type="button" class="plain" onClick={clear}>
            Clear all
          </button>
        </li>
      )}
    </ul>
  );
}

function clear(): void {
  refine(parameters(Object.fromEntries(NAMES.map((name) => [name, ""]))));
}

/** The states as tabs, with their numbers of tasks. They are links: each is a view of its own. */
function States({ filters, listed }: { filters: Filters; listed: Listed | undefined }) {
  const tabs = TABS.filter((tab) => tab.id !== "OPEN" || (listed?.everyone ?? true));
  const path = place.value === "tasks" || place.value === "new" ? route.value.path : ["tasks"];
  const others = Object.fromEntries(route.value.query);
  const bar = useRef<HTMLElement>(null);
  useEffect(() => bar.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [filters.state]);
  return (
    <nav class="states" aria-label="States" ref={bar}>
      {tabs.map((tab) => {
        const number = listed?.counts && numberOf(listed.counts, tab.states);
        return (
          <a
            key={tab.id}
            href={href(path, { ...others, ...parameters({ state: tab.id }) })}
            aria-current={filters.state === tab.id ? "true" : undefined}
            data-state={tab.id}
            data-none={number?.count === 0 ? "true" : undefined}
          >
            {tab.name}
            {number && <span class="count">{amount(number)}</span>}
          </a>
        );
      })}
    </nav>
  );
}

/** How many tasks are shown, and of how many. */
function Summary({ shown, listed, filters }: { shown: number; listed: Listed; filters: Filters }) {
  const { total, everyone } = listed;
  if (!everyone && filters.text) {
    const searched = `${shown} of ${plural(listed.rows.length, "loaded task")} match`;
    return <>{listed.more ? `${searched}; ${count(total.count - listed.rows.length)} more are not loaded` : searched}</>;
  }
  if (total.isMinimum) return <>{`${count(shown)} of more than ${plural(total.count, "task")} shown`}</>;
  return <>{shown < total.count ? `${count(shown)} of ${plural(total.count, "task")} shown` : plural(Math.max(total.count, shown), "task")}</>;
}

/** Why there are no tasks, and what to do next. */
function None({ filters, listed, listing }: { filters: Filters; listed: Listed; listing: Listing }) {
  const further = (label: string) => (
    <button type="button" class="primary" disabled={listing.reading.value} onClick={() => void listing.more()}>
      {listing.reading.value ? "Searching…" : label}
    </button>
  );
  if (!isFiltered(filters)) {
    return (
      <Empty title="No tasks yet">
        <p>Every message to an agent starts a task. Send one here, or over A2A with any client:</p>
        <p>
          <code>dragoman send "Hello"</code>
        </p>
        <a class="button primary" href="#/new">
          New task
        </a>
      </Empty>
    );
  }
  const none = (title: string, children: ComponentChildren) => (
    <Empty title={title}>
      {children}
      <button type="button" onClick={clear}>
        Clear filters
      </button>
    </Empty>
  );
  if (!listed.everyone && filters.text) {
    const searched = `Searched ${plural(listed.rows.length, "loaded task")} of ${count(listed.total.count)}.`;
    return none(`No loaded task has “${filters.text}”`, [<p key="searched">{searched} Enter opens the task with a whole id.</p>, listed.more && further("Load more tasks")]);
  }
  if (listed.more) return none("No match so far", [<p key="searched">The newest tasks were searched; older ones were not.</p>, further("Search older tasks")]);
  return none("No matching tasks", <p>{filters.text ? "All tasks were searched." : "Change or clear the filters."}</p>);
}
