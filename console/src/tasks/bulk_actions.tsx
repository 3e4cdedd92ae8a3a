// Actions for operators on selected tasks, or on all that the filters select: the dialog counts first, and acts page by page.

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { agentName } from "../shared/agents";
import { call, newIdempotencyKey } from "../shared/api";
import { ErrorMessage, StateLabel } from "../shared/components";
import { formatNumber, formatCount, plural, shortId } from "../shared/format";
import { Menu, MenuItem } from "../shared/menu";
import { STATES, type BulkResponse, type TaskFailure } from "../shared/messages";
import { href } from "../shared/route";
import { tenantOf, tenantQuery } from "../shared/tenant";
import { filterTexts, listRequest, parameters, statesOf, type Filters } from "./filters";
import { countInStates, rowKey, type LoadedTasks, type TaskCount, type TaskRow } from "./listing";

const PAGE_SIZE = 100; // the maximum of the server
const SAMPLE_SIZE = 5;
const MAX_SHOWN_FAILURES = 50;
/** The filters for the tasks that a rerun began. */
const NEW_TASKS = { age: "hour", order: "created" };

interface BulkAction {
  id: "cancel" | "rerun" | "erase";
  /** `Cancel 12 open tasks`. */
  verb: string;
  participle: string;
  kind: string;
  /** The states of the tasks that it concerns; empty for all. */
  states: readonly string[];
  consequence: string;
}

const OPEN_STATES = STATES.slice(0, 4);
const RERUN_STATES = ["FAILED", "CANCELED", "REJECTED"];

/** The actions on the tasks in these states; in all if none is given. */
function actionsOn(states: readonly string[]): BulkAction[] {
  const restrictTo = (allowed: readonly string[]) => (states.length ? states.filter((state) => allowed.includes(state)) : allowed);
  const open = restrictTo(OPEN_STATES);
  const ended = states.length ? restrictTo(RERUN_STATES) : ["FAILED"];
  const all: BulkAction[] = [
    {
      id: "cancel",
      verb: "Cancel",
      participle: "canceled",
      kind: "open ",
      states: open,
      consequence: "Their agents are asked to stop. What they have produced so far stays.",
    },
    {
      id: "rerun",
      verb: "Rerun",
      participle: "started again",
      kind: states.length ? "" : "failed ",
      states: ended,
      consequence: "Each gets a new task with the same first message, for the same principal. Finished steps are kept.",
    },
    {
      id: "erase",
      verb: "Erase",
      participle: "erased",
      kind: "",
      states,
      consequence: "They are removed with everything that belongs to them. This cannot be undone.",
    },
  ];
  return all.filter((action) => action.id === "erase" || action.states.length > 0);
}

interface BulkActionsProps {
  /** The tasks; undefined for all that the filters select. */
  selected: readonly TaskRow[] | undefined;
  filters: Filters;
  loaded: LoadedTasks;
}

/** Rerun as a button, and what cannot be undone behind a menu. */
export function BulkActions({ selected, filters, loaded }: BulkActionsProps) {
  const chosen = useSignal<{ action: BulkAction; rows: readonly TaskRow[] | undefined } | undefined>(undefined);
  const states = selected ? [...new Set(selected.map(stateOf))] : statesOf(filters);
  const countOf = (action: BulkAction): TaskCount =>
    selected
      ? { count: selected.filter((row) => appliesTo(action, row)).length, isMinimum: false }
      : countInStates(loaded.counts ?? new Map(), action.states);
  const available = actionsOn(states)
    .map((action) => ({ action, number: countOf(action) }))
    .filter(({ number }) => number.count > 0);
  const choose = (action: BulkAction) => (chosen.value = { action, rows: selected?.filter((row) => appliesTo(action, row)) });
  const [reruns, others] = [true, false].map((isRerun) => available.filter(({ action }) => (action.id === "rerun") === isRerun));
  return (
    <>
      {reruns?.map(({ action, number }) => (
        <button key={action.id} type="button" onClick={() => choose(action)}>
          {title(action, number)}
        </button>
      ))}
      {others && others.length > 0 && (
        <Menu button="More ▾" label="More actions">
          {others.map(({ action, number }) => (
            <MenuItem key={action.id} danger onSelect={() => choose(action)}>
              {title(action, number)}…
            </MenuItem>
          ))}
        </Menu>
      )}
      {chosen.value && (
        <BulkDialog
          action={chosen.value.action}
          selected={chosen.value.rows}
          filters={filters}
          failure={filters.cause && loaded.rows[0]?.statusText}
          sample={(chosen.value.rows ?? loaded.rows.filter((row) => appliesTo((chosen.value as { action: BulkAction }).action, row))).slice(0, SAMPLE_SIZE)}
          close={() => (chosen.value = undefined)}
        />
      )}
    </>
  );
}

interface RerunFailedProps {
  filters: Filters;
  number: TaskCount;
  /** With what they failed. */
  failure: string;
  onClose: () => void;
}

/** Reruns each failed task that the filters select, once. */
export function RerunFailed({ filters, number, failure, onClose }: RerunFailedProps) {
  const open = useSignal(false);
  const action = actionsOn(["FAILED"]).find(({ id }) => id === "rerun") as BulkAction;
  return (
    <>
      <button type="button" aria-label={`${title(action, number)} that failed with ${failure}`} title={title(action, number)} onClick={() => (open.value = true)}>
        Rerun
      </button>
      {open.value && (
        <BulkDialog
          action={action}
          selected={undefined}
          filters={filters}
          failure={failure}
          sample={[]}
          close={() => {
            open.value = false;
            onClose();
          }}
        />
      )}
    </>
  );
}

function stateOf({ task }: TaskRow): string {
  return task.status.state.replace("TASK_STATE_", "");
}

function appliesTo({ states }: BulkAction, row: TaskRow): boolean {
  return states.length === 0 || states.includes(stateOf(row));
}

function title({ verb, kind }: BulkAction, number: TaskCount): string {
  return `${verb} ${formatCount(number)} ${kind}task${number.count === 1 && !number.isMinimum ? "" : "s"}`;
}

interface Progress {
  done: number;
  changed: number;
  skipped: number;
  failures: TaskFailure[];
  finished: boolean;
}

interface BulkDialogProps {
  action: BulkAction;
  /** The tasks; undefined for all that the filters select. */
  selected: readonly TaskRow[] | undefined;
  filters: Filters;
  /** With what they failed, if it is known; else the filter by cause is shown. */
  failure?: string;
  /** Some of the tasks. */
  sample: readonly TaskRow[];
  close: () => void;
}

function BulkDialog({ action, selected, filters, failure, sample, close }: BulkDialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const stopped = useRef(false);
  const matched = useSignal<TaskCount | undefined>(undefined);
  const progress = useSignal<Progress | undefined>(undefined);
  const error = useSignal<unknown>(undefined);
  const shownRows = useSignal(sample); // not those that match while it acts
  /** The tasks as filters of the server's: one for each selected task. */
  const requests = useRef(selected ? selected.map((row) => rowRequest(row, action)) : [filterRequest(filters, action)]).current;

  const callAction = (filter: object, fields: object) => call<BulkResponse>(`operations/tasks:${action.id}`, { body: { filter, ...fields } });

  useEffect(() => {
    dialog.current?.showModal();
    if (selected) matched.value = { count: selected.length, isMinimum: false };
    else
      callAction(requests[0] as object, { dryRun: true })
        .then((counted) => (matched.value = { count: Number(counted.matched ?? 0), isMinimum: counted.matchedIsMinimum ?? false }))
        .catch((failed: unknown) => (error.value = failed));
    return () => void (stopped.current = true);
  }, []);

  const run = async () => {
    let now: Progress = { done: 0, changed: 0, skipped: 0, failures: [], finished: false };
    progress.value = now;
    error.value = undefined;
    try {
      for (const filter of requests) {
        const requestId = filters.cause && !selected ? "" : newIdempotencyKey(); // the server reruns each of a cause once
        let pageToken = "";
        do {
          const page = await callAction(filter, { limit: PAGE_SIZE, pageToken, requestId });
          now = progress.value = addPage(now, page);
          pageToken = page.nextPageToken ?? "";
        } while (pageToken && !stopped.current);
        if (stopped.current) break;
      }
    } catch (failed) {
      error.value = failed;
    }
    progress.value = { ...now, finished: true };
  };

  const total = matched.value;
  const state = progress.value;
  return (
    <dialog ref={dialog} class="bulk-dialog" aria-labelledby="bulk-title" onClose={close}>
      <h2 id="bulk-title">{total ? `${title(action, total)}${state ? "" : "?"}` : `${action.verb} tasks`}</h2>
      {!state && (
        <>
          <p>{action.consequence}</p>
          {failure && <p class="why">{failure}</p>}
          {!selected && <SelectedFilters action={action} filters={failure ? { ...filters, cause: "" } : filters} />}
          {shownRows.value.length > 0 && <SampleRows rows={shownRows.value} fields={Math.max(0, (total?.count ?? 0) - shownRows.value.length)} />}
        </>
      )}
      {state && <BulkResult action={action} state={state} total={total?.count ?? 0} />}
      {state?.finished && action.id === "rerun" && state.changed > 0 && (
        <p>
          <a href={href(["tasks"], parameters({ ...NEW_TASKS, agent: filters.agent, scope: filters.scope }))} onClick={() => dialog.current?.close()}>
            See the new {state.changed === 1 ? "task" : "tasks"}
          </a>
        </p>
      )}
      <ErrorMessage error={error.value} />
      <div class="buttons">
        {!state && (
          <button type="button" class={action.id === "rerun" ? "primary" : "primary risky"} disabled={!total?.count} onClick={() => void run()}>
            {total ? title(action, total) : "Counting…"}
          </button>
        )}
        {state && !state.finished && (
          <button type="button" onClick={() => (stopped.current = true)}>
            Stop
          </button>
        )}
        {(!state || state.finished) && (
          <button type="button" autofocus onClick={() => dialog.current?.close()}>
            {state ? "Close" : action.id === "rerun" ? "Back" : "Keep them"}
          </button>
        )}
      </div>
    </dialog>
  );
}

function addPage(now: Progress, page: BulkResponse): Progress {
  const [changed, skipped, failures] = [Number(page.changed ?? 0), Number(page.skipped ?? 0), page.failures ?? []];
  return {
    done: now.done + changed + skipped + failures.length,
    changed: now.changed + changed,
    skipped: now.skipped + skipped,
    failures: [...now.failures, ...failures],
    finished: false,
  };
}

function filterRequest(filters: Filters, action: BulkAction): object {
  return { ...listRequest(filters, true, Date.now()), states: statesIn(action), order: undefined };
}

/** One task; a task that has changed its state is not canceled or rerun. */
function rowRequest({ tenant, task, principal }: TaskRow, action: BulkAction): object {
  const states = action.id === "erase" ? [] : statesIn(action);
  return { ...tenantQuery(tenant), taskId: task.id, ...(principal && { principal }), states };
}

function statesIn({ states }: BulkAction): string[] {
  return states.map((state) => `TASK_STATE_${state}`);
}

/** The filters in words. */
function SelectedFilters({ action, filters }: { action: BulkAction; filters: Filters }) {
  const texts = filterTexts(filters).map((chip) => chip.text);
  if (filters.text) texts.unshift(`Text: ${filters.text}`);
  if (action.states.length) texts.push(`State: ${action.states.join(" or ").replaceAll("_", " ").toLowerCase()}`);
  return (
    <ul class="chips" aria-label="Filters">
      {texts.map((text) => (
        <li key={text} class="plain-chip">
          {text}
        </li>
      ))}
    </ul>
  );
}

function SampleRows({ rows, fields: fields }: { rows: readonly TaskRow[]; fields: number }) {
  return (
    <ul class="sample" aria-label="Some of these tasks">
      {rows.map((row) => (
        <li key={rowKey(row)}>
          <StateLabel state={row.task.status.state} />
          <span>{row.summary || shortId(row.task.id)}</span>
          <span class="faint">{row.principal || agentName(row.tenant)}</span>
        </li>
      ))}
      {fields > 0 && <li class="faint">and {formatNumber(fields)} more</li>}
    </ul>
  );
}

function BulkResult({ action, state, total }: { action: BulkAction; state: Progress; total: number }) {
  const { done, changed, skipped, failures, finished } = state;
  return (
    <div class="result" aria-live="polite">
      <progress max={Math.max(total, done, 1)} value={finished ? Math.max(total, done, 1) : done} aria-label="Progress" />
      <p>
        <b>
          {plural(changed, "task")} {action.participle}
        </b>
        {skipped > 0 && `, ${formatNumber(skipped)} skipped: they ${action.id === "rerun" ? "were rerun before" : "had changed"}`}
        {failures.length > 0 && `, ${formatNumber(failures.length)} failed`}
        {finished && done < total && `. ${formatNumber(total - done)} were not reached`}
      </p>
      {failures.length > 0 && (
        <ul class="failures" aria-label="Failures">
          {failures.slice(0, MAX_SHOWN_FAILURES).map((failure) => (
            <li key={`${failure.scope}/${failure.agent}/${failure.taskId}`}>
              <a href={href(["tasks", tenantOf(failure.scope, failure.agent), failure.taskId])}>
                <code>{shortId(failure.taskId)}</code>
              </a>{" "}
              {agentName(failure.agent)}: {failure.reason}
            </li>
          ))}
          {failures.length > MAX_SHOWN_FAILURES && <li class="faint">and {formatNumber(failures.length - MAX_SHOWN_FAILURES)} more</li>}
        </ul>
      )}
    </div>
  );
}
