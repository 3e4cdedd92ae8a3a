// Actions on a task: cancel it, run it again for its principal, or send its message again.

import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { call, encodeSegment, newIdempotencyKey } from "../shared/api";
import { ErrorMessage } from "../shared/components";
import { isTerminal, isWaiting, type Message, type Task } from "../shared/messages";
import { navigate } from "../shared/route";
import { canOperate } from "../shared/sign_in";
import { agentOf, scopeOf, tenantPath, tenantQuery } from "../shared/tenant";
import { draft } from "./compose/message_form";

interface ActionsProps {
  tenant: string;
  id: string;
  state: string;
  /** The message that began the task. */
  firstMessage: Message | undefined;
  /** The principal of a task that is not the caller's; empty for the caller's own. */
  principal: string;
}

export function TaskActions({ tenant, id, state, firstMessage, principal }: ActionsProps) {
  const sendAgain = () => {
    draft.value = firstMessage;
    navigate(["new"], { agent: agentOf(tenant), scope: scopeOf(tenant) });
  };
  return (
    <div class="actions">
      {!isTerminal(state) && (!principal || canOperate.value) && <Cancel {...{ tenant, id, state, principal }} />}
      {isTerminal(state) && canOperate.value && <Rerun {...{ tenant, id, state, principal }} />}
      {isTerminal(state) && firstMessage && !principal && (
        <button type="button" onClick={sendAgain} title="Opens the form for a new task with this task's first message">
          Edit and send
        </button>
      )}
    </div>
  );
}

/** Asks before it cancels: a cancel cannot be undone. */
function Cancel({ tenant, id, state, principal }: Omit<ActionsProps, "firstMessage">) {
  const dialog = useRef<HTMLDialogElement>(null);
  const sent = useSignal(false);
  const error = useSignal<unknown>(undefined);
  const cancel = async () => {
    sent.value = true;
    error.value = undefined;
    try {
      if (principal) {
        await call(`operations/tasks/${encodeSegment(id)}:cancel`, { body: { ...tenantQuery(tenant), principal } });
      } else {
        await call(`${tenantPath(tenant)}/tasks/${encodeSegment(id)}:cancel`, { method: "POST" });
      }
      dialog.current?.close();
      document.getElementById("task-title")?.focus(); // the button is gone as soon as the task has ended
    } catch (cause) {
      error.value = cause;
    }
    sent.value = false;
  };
  return (
    <>
      <button type="button" class="danger" onClick={() => dialog.current?.showModal()}>
        Cancel task
      </button>
      <dialog ref={dialog} aria-labelledby="cancel-title" onClose={() => (error.value = undefined)}>
        <h2 id="cancel-title">Cancel this task?</h2>
        {principal && (
          <p>
            It belongs to <b>{principal}</b>.
          </p>
        )}
        <p>{consequence(state)} This cannot be undone.</p>
        <ErrorMessage error={error.value} />
        <div class="buttons">
          <button type="button" class="danger" disabled={sent.value} onClick={() => void cancel()}>
            {sent.value ? "Canceling" : "Cancel task"}
          </button>
          <button type="button" autofocus onClick={() => dialog.current?.close()}>
            Keep it
          </button>
        </div>
      </dialog>
    </>
  );
}

/** Runs an ended task again, as a new task of its principal. */
function Rerun({ tenant, id, state, principal }: Omit<ActionsProps, "firstMessage">) {
  const dialog = useRef<HTMLDialogElement>(null);
  const request = useRef("");
  const repeatsSteps = useSignal(false);
  const sent = useSignal(false);
  const error = useSignal<unknown>(undefined);
  const open = () => {
    request.current = newIdempotencyKey(); // a repeated click in this dialog makes no second task
    dialog.current?.showModal();
  };
  const rerun = async () => {
    sent.value = true;
    error.value = undefined;
    const body = { ...tenantQuery(tenant), principal, requestId: request.current, repeatSteps: repeatsSteps.value };
    try {
      const created = await call<{ task: { task: Task } }>(`operations/tasks/${encodeSegment(id)}:rerun`, { body });
      dialog.current?.close();
      navigate(["tasks", tenant, created.task.task.id]);
    } catch (cause) {
      error.value = cause;
    }
    sent.value = false;
  };
  return (
    <>
      <button type="button" onClick={open} title="Starts a new task with the same first message; finished steps are kept">
        Rerun
      </button>
      <dialog ref={dialog} aria-labelledby="rerun-title" onClose={() => (error.value = undefined)}>
        <h2 id="rerun-title">Run this task again?</h2>
        <p>
          Its first message starts a new task
          {principal && (
            <>
              {" "}
              of <b>{principal}</b>
            </>
          )}
          , in the same conversation.
        </p>
        {!/COMPLETED$/.test(state) && (
          <label>
            <input type="checkbox" checked={repeatsSteps.value} onChange={(event) => (repeatsSteps.value = event.currentTarget.checked)} /> Repeat
            finished steps too
          </label>
        )}
        <ErrorMessage error={error.value} />
        <div class="buttons">
          <button type="button" class="primary" disabled={sent.value} onClick={() => void rerun()}>
            {sent.value ? "Starting" : "Rerun"}
          </button>
          <button type="button" onClick={() => dialog.current?.close()}>
            Close
          </button>
        </div>
      </dialog>
    </>
  );
}

function consequence(state: string): string {
  if (isWaiting(state)) return "It waits for its caller, and ends as canceled.";
  if (/SUBMITTED$/.test(state)) return "It has not started, and ends as canceled.";
  return "Its agent is asked to stop, and the task ends as canceled. What it has produced so far stays.";
}
