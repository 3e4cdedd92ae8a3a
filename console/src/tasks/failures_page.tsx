// Failed tasks by what failed: how many, since when, and a rerun for each group.

import { agentName } from "../shared/agents";
import { call } from "../shared/api";
import { ErrorMessage, TimeSince } from "../shared/components";
import { formatCount } from "../shared/format";
import { failureTitle, type FailureGroup } from "../shared/messages";
import { AccessError, EmptyState, isAccessError, Page } from "../shared/page";
import { usePolling } from "../shared/polling";
import { href, route, updateQuery } from "../shared/route";
import { RerunFailed } from "./bulk_actions";
import { AGES, filtersOf, filterTexts, listRequest, parameters, type Filters } from "./filters";

/** Each call is audited. */
const POLL_INTERVAL_MS = 30_000;
const MAX_GROUPS = 100;

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
  const { value, error } = usePolling((signal) => readFailures(filters, signal), POLL_INTERVAL_MS, [JSON.stringify(filters)]);
  const groups = value?.groups ?? [];
  return (
    <Page title="Failures" actions={<Filter filters={filters} />}>
      {isAccessError(error) ? <AccessError error={error} subject="why tasks failed" /> : <ErrorMessage error={error} />}
      {value && groups.length === 0 && (
        <EmptyState title="No task failed.">
          <p>Failed tasks are grouped here by the exception and the function that raised it.</p>
        </EmptyState>
      )}
      {groups.map((group) => (
        <GroupCard key={group.cause} group={group} filters={filters} />
      ))}
      {value?.more && <p class="faint">There are more groups than these.</p>}
    </Page>
  );
}

function Filter({ filters }: { filters: Filters }) {
  return (
    <>
      {filterTexts(filters)
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
        <option value="">Any time</option>
        {AGES.filter((age) => age.since).map((age) => (
          <option key={age.id} value={age.id}>
            {age.name}
          </option>
        ))}
      </select>
    </>
  );
}

function GroupCard({ group, filters }: { group: FailureGroup; filters: Filters }) {
  const number = { count: Number(group.count), isMinimum: group.countIsMinimum ?? false };
  const selected = { ...filters, cause: group.cause, state: "FAILED" };
  const frame = group.failure.frames?.at(-1);
  return (
    <section class="card" aria-label={failureTitle(group.failure)} data-state="failed">
      <header>
        <h3>
          <a class="clamped" href={href(["tasks"], parameters(selected))}>
            {failureTitle(group.failure)}
          </a>
        </h3>
        <span class="space" />
        <RerunFailed filters={selected} number={number} failure={failureTitle(group.failure)} />
      </header>
      {frame && (
        <p class="why">
          <code>
            {frame.file.split("/").at(-1)}:{frame.line} in {frame.function}: {frame.code}
          </code>
        </p>
      )}
      <dl class="figures-line">
        <div>
          <dt>tasks</dt>
          <dd>{formatCount(number)}</dd>
        </div>
        <div>
          <dt>agent</dt>
          <dd>{agentName(group.agent)}</dd>
        </div>
        <div>
          <dt>last</dt>
          <dd>
            <TimeSince time={group.last} suffix=" ago" />
          </dd>
        </div>
        <div>
          <dt>first</dt>
          <dd>
            <TimeSince time={group.first} suffix=" ago" />
          </dd>
        </div>
        {group.failure.step && (
          <div>
            <dt>step</dt>
            <dd>{group.failure.step}</dd>
          </div>
        )}
      </dl>
    </section>
  );
}
