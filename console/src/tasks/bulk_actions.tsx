// Actions for operators on all tasks that the filters select: the dialog counts first, and acts page by page.

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { named } from "../shared/agents";
import { chips, requestOf, statesOf, type Filters } from "./filters";
import { nameOf, numberOf, type Count, type Listed, type Row } from "./listing";
import { Problem, State } from "../shared/components";
import { href } from "../shared/route";
import { amount, count, plural, short } from "../shared/format";
import { call, key } from "../shared/api";
import { fresh } from "../task/compose/send";
import { caller } from "../shared/sign_in";
import { tenantOf } from "../shared/tenant";
import { STATES, type BulkResponse, type TaskFailure } from "../shared/messages";

const PAGE = 100; // the maximum of the server
const SAMPLE = 5;
const SHOWN_FAILURES = 50;

interface Action {
  id: "cancel" | "rerun" | "erase";
  /** `Cancel 12 open tasks`. */
  verb: string;
  done: string;
  kind: string;
  /** The states of the tasks that it concerns; empty for all. */
  states: readonly string[];
  consequence: string;
}

const OPEN = STATES.slice(0, 4);
const RERUN = ["FAILED", "CANCELED", "REJECTED"];

/** The actions on the tasks in these states; in all if none is given. */
function actionsOn(states: readonly string[]): Action[] {
  const among = (wanted: readonly string[]) => (states.length ? states.filter((state) => wanted.includes(state)) : wanted);
  const open = among(OPEN);
  const ended = states.length ? among(RERUN) : ["FAILED"];
  const all: Action[] = [
    {
      id: "cancel",
      verb: "Cancel",
      done: "canceled",
      kind: "open ",
      states: open,
      consequence: "Their agents are asked to stop. What they have produced so far stays.",
    },
    {
      id: "rerun",
      verb: "Rerun",
      done: "started again",
      kind: states.length ? "" : "failed ",
      states: ended,
      consequence: "Each gets a new task with the same first message, for the same principal. Finished steps are kept.",
    },
    { id: "erase", verb: "Erase", done: "erased", kind: "", states, consequence: "They are removed with everything that belongs to them. This cannot be undone." },
  ];
  return all.filter((action) => action.id === "erase" || action.states.length > 0);
}

/** The buttons for actions on the tasks that the filters select; nothing for viewers. */
export function Bulk({ filters, listed }: { filters: Filters; listed: Listed }) {
  const chosen = useSignal<Action | undefined>(undefined);
  if (key.value && !caller.value?.grants.includes("operator")) return null;
  const counted = actionsOn(statesOf(filters)).map((action) => ({ action, number: numberOf(listed.counts ?? new Map(), action.states) }));
  const possible = counted.filter(({ number }) => number.count > 0);
  if (possible.length === 0 && !chosen.value) return null;
  return (
    <div class="bulk" role="group" aria-label="Actions on all matching tasks">
      {possible.map(({ action, number }) => (
        <button key={action.id} type="button" class={action.id === "rerun" ? "" : "danger"} onClick={() => (chosen.value = action)}>
          {title(action, number)}
        </button>
      ))}
      {chosen.value && (
        <Dialog
          action={chosen.value}
          filters={filters}
          sample={listed.rows.filter((row) => concerns(chosen.value as Action, row)).slice(0, SAMPLE)}
          close={() => (chosen.value = undefined)}
        />
      )}
    </div>
  );
}

function concerns({ states }: Action, { task }: Row): boolean {
  return states.length === 0 || states.includes(task.status.state.replace("TASK_STATE_", ""));
}

function title({ verb, kind }: Action, number: Count): string {
  return `${verb} ${amount(number)} ${kind}task${number.count === 1 && !number.isMinimum ? "" : "s"}`;
}

interface Progress {
  done: number;
  changed: number;
  skipped: number;
  failures: TaskFailure[];
  over: boolean;
}

interface Props {
  action: Action;
  filters: Filters;
  /** Some of the tasks. */
  sample: readonly Row[];
  close: () => void;
}

function Dialog({ action, filters, sample, close }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const stopped = useRef(false);
  const matched = useSignal<Count | undefined>(undefined);
  const progress = useSignal<Progress | undefined>(undefined);
  const error = useSignal<unknown>(undefined);
  const shown = useSignal(sample); // not those that match while it acts
  const request = useRef({ ...requestOf(filters, true, Date.now()), states: action.states.map((state) => `TASK_STATE_${state}`), order: undefined });

  const ask = (more: object) => call<BulkResponse>(`operations/tasks:${action.id}`, { body: { filter: request.current, ...more } });

  useEffect(() => {
    dialog.current?.showModal();
    ask({ dryRun: true })
      .then((found) => (matched.value = { count: Number(found.matched ?? 0), isMinimum: found.matchedIsMinimum ?? false }))
      .catch((failed: unknown) => (error.value = failed));
    return () => void (stopped.current = true);
  }, []);

  const act = async () => {
    const requestId = fresh();
    let now: Progress = { done: 0, changed: 0, skipped: 0, failures: [], over: false };
    progress.value = now;
    error.value = undefined;
    let pageToken = "";
    try {
      do {
        const page = await ask({ limit: PAGE, pageToken, requestId });
        const [changed, skipped, failures] = [Number(page.changed ?? 0), Number(page.skipped ?? 0), page.failures ?? []];
        now = {
          done: now.done + changed + skipped + failures.length,
          changed: now.changed + changed,
          skipped: now.skipped + skipped,
          failures: [...now.failures, ...failures],
          over: false,
        };
        progress.value = now;
        pageToken = page.nextPageToken ?? "";
      } while (pageToken && !stopped.current);
    } catch (failed) {
      error.value = failed;
    }
    progress.value = { ...now, over: true };
  };

  const total = matched.value;
  const state = progress.value;
  return (
    <dialog ref={dialog} class="bulk-dialog" aria-labelledby="bulk-title" onClose={close}>
      <h2 id="bulk-title">{total ? `${title(action, total)}${state ? "" : "?"}` : `${action.verb} tasks`}</h2>
      {!state && (
        <>
          <p>{action.consequence}</p>
          <Selected action={action} filters={filters} />
          <Sample rows={shown.value} more={Math.max(0, (total?.count ?? 0) - shown.value.length)} />
        </>
      )}
      {state && <Result action={action} state={state} total={total?.count ?? 0} />}
      <Problem error={error.value} />
      <div class="buttons">
        {!state && (
          <button type="button" class={action.id === "rerun" ? "primary" : "primary risky"} disabled={!total?.count} onClick={() => void act()}>
            {total ? title(action, total) : "Counting…"}
          </button>
        )}
        {state && !state.over && (
          <button type="button" onClick={() => (stopped.current = true)}>
            Stop
          </button>
        )}
        {(!state || state.over) && (
          <button type="button" autofocus onClick={() => dialog.current?.close()}>
            {state ? "Close" : action.id === "rerun" ? "Back" : "Keep them"}
          </button>
        )}
      </div>
    </dialog>
  );
}

/** The filters in words. */
function Selected({ action, filters }: { action: Action; filters: Filters }) {
  const texts = chips(filters).map((chip) => chip.text);
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

function Sample({ rows, more }: { rows: readonly Row[]; more: number }) {
  return (
    <ul class="sample" aria-label="Some of these tasks">
      {rows.map((row) => (
        <li key={nameOf(row)}>
          <State state={row.task.status.state} />
          <span>{row.summary || short(row.task.id)}</span>
          <span class="faint">{row.principal || named(row.tenant)}</span>
        </li>
      ))}
      {more > 0 && <li class="faint">and {count(more)} more</li>}
    </ul>
  );
}

function Result({ action, state, total }: { action: Action; state: Progress; total: number }) {
  const { done, changed, skipped, failures, over } = state;
  return (
    <div class="result" aria-live="polite">
      <progress max={Math.max(total, done, 1)} value={over ? Math.max(total, done, 1) : done} aria-label="Progress" />
      <p>
        <b>
          {plural(changed, "task")} {action.done}
        </b>
        {skipped > 0 && `, ${count(skipped)} skipped: they had changed`}
        {failures.length > 0 && `, ${count(failures.length)} failed`}
        {over && done < total && `. ${count(total - done)} were not reached`}
      </p>
      {failures.length > 0 && (
        <ul class="failures" aria-label="Failures">
          {failures.slice(0, SHOWN_FAILURES).map((failure) => (
            <li key={`${failure.scope}/${failure.agent}/${failure.taskId}`}>
              <a href={href(["tasks", tenantOf(failure.scope, failure.agent), failure.taskId])}>
                <code>{short(failure.taskId)}</code>
              </a>{" "}
              {named(failure.agent)}: {failure.reason}
            </li>
          ))}
          {failures.length > SHOWN_FAILURES && <li class="faint">and {count(failures.length - SHOWN_FAILURES)} more</li>}
        </ul>
      )}
    </div>
  );
}
