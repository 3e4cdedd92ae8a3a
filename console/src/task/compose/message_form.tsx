// The form for a new task, an answer to a waiting task, or a message to a working task.

import { signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { agents } from "../../shared/agents";
import { Parts } from "../../shared/content/parts";
import { Problem } from "../../shared/components";
import { go, route } from "../../shared/route";
import { bytes } from "../../shared/format";
import { Failure } from "../../shared/api";
import { fresh, send } from "./send";
import { DEFAULT_SCOPE, tenantOf } from "../../shared/tenant";
import { isTerminal, isWaiting, type Message, type Part } from "../../shared/messages";

/** The message with which the form of the next new task begins. */
export const draft = signal<Message | undefined>(undefined);

/** Touch screens have no Ctrl key. */
const TOUCH = matchMedia("(pointer: coarse)").matches;

interface Spoken {
  tenant: string;
  task?: { id: string; context: string; state: string };
}

export function Compose({ tenant, task }: Spoken) {
  const first = useRef(task ? undefined : draft.value).current;
  const texts = first?.parts.filter((part) => part.text !== undefined).map((part) => part.text);
  const text = useSignal(task ? "" : (texts?.join("\n") ?? route.value.query.get("text") ?? ""));
  const asData = useSignal(false);
  const files = useSignal<readonly File[]>([]);
  /** Files and data of a message that is sent again. */
  const parts = useSignal<readonly Part[]>(first?.parts.filter((part) => part.text === undefined) ?? []);
  const sending = useSignal(false);
  const error = useSignal<unknown>(undefined);
  const reply = useSignal<Message | undefined>(undefined);
  const key = useRef(fresh());
  const chooser = useRef<HTMLInputElement>(null);
  const over = task ? isTerminal(task.state) : true;
  const waiting = task ? isWaiting(task.state) : false;
  const word = waiting ? "Answer" : "Send";
  const name = task ? (over ? "A new task in the same context" : waiting ? "Answer" : "A message to the running task") : "Message";

  useEffect(() => {
    if (first) draft.value = undefined; // used up
  }, []);

  // A changed draft needs a new idempotency key.
  useEffect(() => {
    key.current = fresh();
  }, [text.value, asData.value, files.value, parts.value]);

  const add = (more: FileList | null | undefined) => {
    if (more?.length) files.value = [...files.value, ...more];
  };

  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    if (sending.value || (!text.value.trim() && files.value.length + parts.value.length === 0)) return;
    sending.value = true;
    error.value = undefined;
    reply.value = undefined;
    try {
      const message = { tenant, text: text.value, asData: asData.value, files: files.value, parts: parts.value };
      const sent = await send({ ...message, taskId: over ? "" : (task?.id ?? ""), contextId: task?.context ?? "" }, key.current);
      text.value = "";
      files.value = [];
      parts.value = [];
      key.current = fresh();
      if (sent.task && sent.task.id !== task?.id) go(["tasks", tenant, sent.task.id]);
      reply.value = sent.message;
    } catch (failed) {
      error.value = failed instanceof SyntaxError ? new Failure(0, `Invalid JSON: ${failed.message}`) : failed;
    }
    sending.value = false;
  };

  const typed = (event: KeyboardEvent) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.isComposing) {
      event.preventDefault();
      (event.currentTarget as HTMLTextAreaElement).form?.requestSubmit();
    }
  };

  return (
    <form
      class={text.value || files.value.length + parts.value.length || error.value ? "compose filled" : "compose"}
      aria-label={name}
      onSubmit={(event) => void submit(event)}
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault();
        add(event.dataTransfer?.files);
      }}
    >
      {reply.value && (
        <section class="reply" aria-label="Reply" role="status">
          <p class="who">agent (message without a task)</p>
          <Parts parts={reply.value.parts} usual="markdown" />
        </section>
      )}
      <Problem error={error.value} />
      {files.value.length + parts.value.length > 0 && (
        <ul class="files" aria-label="Files to send">
          {parts.value.map((part, index) => (
            <li key={index}>
              {part.filename ?? part.url ?? "JSON data"}{" "}
              <button
                type="button"
                class="plain"
                aria-label={`Remove ${part.filename ?? part.url ?? "JSON data"}`}
                onClick={() => (parts.value = parts.value.filter((_, other) => other !== index))}
              >
                ×
              </button>
            </li>
          ))}
          {files.value.map((file, index) => (
            <li key={index}>
              {file.name} <span class="faint">{bytes(file.size)}</span>{" "}
              <button
                type="button"
                class="plain"
                aria-label={`Remove ${file.name}`}
                onClick={() => (files.value = files.value.filter((_, other) => other !== index))}
              >
                ×
              </button>
            </li>
          ))}
        </ul>
      )}
      <textarea
        id="message"
        rows={task ? 2 : 4}
        aria-label={name}
        placeholder={TOUCH ? name : `${name}  (Ctrl+Enter to send)`}
        value={text.value}
        onInput={(event) => (text.value = event.currentTarget.value)}
        onKeyDown={typed}
      />
      <div class="buttons">
        <button type="submit" class="primary" disabled={sending.value}>
          {sending.value ? "Sending" : word}
        </button>
        <button type="button" onClick={() => chooser.current?.click()}>
          Add files
        </button>
        <input
          ref={chooser}
          type="file"
          multiple
          hidden
          aria-label="Files"
          onChange={(event) => {
            add(event.currentTarget.files);
            event.currentTarget.value = "";
          }}
        />
        <label>
          <input type="checkbox" checked={asData.value} onChange={(event) => (asData.value = event.currentTarget.checked)} /> JSON data
        </label>
      </div>
    </form>
  );
}

/** The form for a new task, with the choice of agent. */
export function New() {
  const known = agents.value ?? [];
  const asked = route.value.query.get("agent");
  const agent = known.find((one) => one.id === asked) ?? known.find((one) => one.root) ?? known[0];
  if (!agent) return <p class="empty">This server has no agents yet.</p>;
  const scope = route.value.query.get("scope") || DEFAULT_SCOPE;
  const choose = (id: string) => go(["new"], { agent: id, scope: route.value.query.get("scope") ?? "" });
  return (
    <article class="new" aria-label="New task">
      <header class="head">
        <a class="back" href="#/tasks">
          ‹ Tasks
        </a>
        <h2>New task</h2>
        <label>
          Agent{" "}
          <select value={agent.id} onChange={(event) => choose(event.currentTarget.value)}>
            {known.map((one) => (
              <option key={one.id} value={one.id}>
                {one.name}
              </option>
            ))}
          </select>
        </label>
      </header>
      <p class="about">
        {agent.description} <a href={`#/agents/${agent.id}`}>Card</a>
        {scope !== DEFAULT_SCOPE && ` In the scope ${scope}.`}
      </p>
      <Compose key={`${agent.id} ${scope} ${route.value.query.get("text") ?? ""}`} tenant={tenantOf(scope, agent.id)} />
    </article>
  );
}
