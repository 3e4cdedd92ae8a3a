// The form for a new task, an answer to a waiting task, or a message to a working task.

import { signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ApiError, newIdempotencyKey } from "../../shared/api";
import { ErrorMessage } from "../../shared/components";
import { Parts } from "../../shared/content/parts";
import { formatBytes } from "../../shared/format";
import { isTerminal, isWaiting, type Message, type Part } from "../../shared/messages";
import { navigate, route } from "../../shared/route";
import { sendMessage } from "./send";

/** The message with which the form of the next new task begins. */
export const draft = signal<Message | undefined>(undefined);

/** What was typed for each task, and for a new one of each agent. Forms come and go, also for a sign-in. */
const typedTexts = new Map<string, string>();

/** Touch screens have no Ctrl key. */
const IS_TOUCH = matchMedia("(pointer: coarse)").matches;

interface MessageFormProps {
  tenant: string;
  task?: { id: string; context: string; state: string };
  /** The question has a form or buttons of its own: this one is shown on request. */
  isCollapsed?: boolean;
  /** Another value folds the form again. */
  version?: string;
  collapsedText?: string;
}

export function MessageForm({ isCollapsed = false, version = "", collapsedText = "Answer in your own words", ...props }: MessageFormProps) {
  const expanded = useSignal<string | undefined>(undefined);
  if (!isCollapsed || expanded.value === version) return <OpenForm {...props} />;
  return (
    <p class="collapsed-form">
      <button type="button" class="plain own-words" onClick={() => (expanded.value = version)}>
        {collapsedText}
      </button>
    </p>
  );
}

function OpenForm({ tenant, task }: Pick<MessageFormProps, "tenant" | "task">) {
  const first = useRef(task ? undefined : draft.value).current;
  const texts = first?.parts.filter((part) => part.text !== undefined).map((part) => part.text);
  const place = `${tenant} ${task?.id ?? ""}`;
  const text = useSignal(texts?.join("\n") ?? ((!task && route.value.query.get("text")) || (typedTexts.get(place) ?? "")));
  const asData = useSignal(false);
  const files = useSignal<readonly File[]>([]);
  /** Files and data of a message that is sent again. */
  const parts = useSignal<readonly Part[]>(first?.parts.filter((part) => part.text === undefined) ?? []);
  const sending = useSignal(false);
  const error = useSignal<unknown>(undefined);
  const reply = useSignal<Message | undefined>(undefined);
  const key = useRef(newIdempotencyKey());
  const fileInput = useRef<HTMLInputElement>(null);
  const ended = task ? isTerminal(task.state) : true;
  const waiting = task ? isWaiting(task.state) : false;
  const buttonText = waiting ? "Answer" : "Send";
  const name = task ? (ended ? "A new task in the same context" : waiting ? "Answer" : "A message to the running task") : "Message";

  useEffect(() => {
    if (first) draft.value = undefined; // used up
  }, []);

  // A changed draft needs a new idempotency key.
  useEffect(() => {
    key.current = newIdempotencyKey();
    typedTexts.set(place, text.value);
  }, [text.value, asData.value, files.value, parts.value]);

  const addFiles = (added: FileList | null | undefined) => {
    if (added?.length) files.value = [...files.value, ...added];
  };

  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    if (sending.value || (!text.value.trim() && files.value.length + parts.value.length === 0)) return;
    sending.value = true;
    error.value = undefined;
    reply.value = undefined;
    try {
      const message = { tenant, text: text.value, asData: asData.value, files: files.value, parts: parts.value };
      const result = await sendMessage({ ...message, taskId: ended ? "" : (task?.id ?? ""), contextId: task?.context ?? "" }, key.current);
      text.value = "";
      typedTexts.delete(place);
      files.value = [];
      parts.value = [];
      key.current = newIdempotencyKey();
      if (result.task && result.task.id !== task?.id) navigate(["tasks", tenant, result.task.id], { tab: "conversation" });
      reply.value = result.message;
    } catch (cause) {
      error.value = cause instanceof SyntaxError ? new ApiError(0, `Invalid JSON: ${cause.message}`) : cause;
    }
    sending.value = false;
  };

  const onKeyDown = (event: KeyboardEvent) => {
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
        addFiles(event.dataTransfer?.files);
      }}
    >
      {reply.value && (
        <section class="reply" aria-label="Reply" role="status">
          <p class="who">agent (message without a task)</p>
          <Parts parts={reply.value.parts} defaultFormat="markdown" />
        </section>
      )}
      <ErrorMessage error={error.value} />
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
              {file.name} <span class="faint">{formatBytes(file.size)}</span>{" "}
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
        placeholder={IS_TOUCH ? name : `${name}  (Ctrl+Enter to send)`}
        value={text.value}
        onInput={(event) => (text.value = event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      <div class="buttons">
        <button type="submit" class="primary" disabled={sending.value}>
          {sending.value ? "Sending" : buttonText}
        </button>
        <button type="button" onClick={() => fileInput.current?.click()}>
          Add files
        </button>
        <input
          ref={fileInput}
          type="file"
          multiple
          hidden
          aria-label="Files"
          onChange={(event) => {
            addFiles(event.currentTarget.files);
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
