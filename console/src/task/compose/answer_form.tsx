// The form that answers a question of an agent: buttons for choices, fields for a schema, a link to sign in.

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { newIdempotencyKey } from "../../shared/api";
import { ErrorMessage } from "../../shared/components";
import { SAFE_URL } from "../../shared/content/elements";
import type { Json, Message, Part } from "../../shared/messages";
import { questionOf, type Question } from "./question";
import { formValues, type Field } from "./schema_fields";
import { sendMessage } from "./send";

interface AnswerFormProps {
  tenant: string;
  task: { id: string; context: string; state: string };
  message: Message;
}

export function AnswerForm({ tenant, task, message }: AnswerFormProps) {
  const question = questionOf(task.state, message.parts);
  const sending = useSignal(false);
  const error = useSignal<unknown>(undefined);
  const key = useRef({ part: "", key: "" });
  const sendAnswer = async (part: Part) => {
    // The same answer again has the same idempotency key: a repeated click does not answer twice.
    const text = JSON.stringify(part);
    if (key.current.part !== text) key.current = { part: text, key: newIdempotencyKey() };
    sending.value = true;
    error.value = undefined;
    try {
      const ids = { tenant, taskId: task.id, contextId: task.context };
      await sendMessage({ ...ids, text: "", asData: false, files: [], parts: [part] }, key.current.key);
    } catch (cause) {
      error.value = cause;
    }
    sending.value = false;
  };
  useEffect(() => {
    // Nothing has the focus: the user can type the answer at once. Touch screens would show their keyboard.
    const idle = document.activeElement === document.body && !matchMedia("(pointer: coarse)").matches;
    if (question.kind === "text" && idle) document.getElementById("message")?.focus({ preventScroll: true });
  }, [message.messageId]);
  return (
    <div class="answer">
      <QuestionForm question={question} busy={sending.value} answer={(part) => void sendAnswer(part)} />
      <ErrorMessage error={error.value} />
    </div>
  );
}

function QuestionForm({ question, busy, answer }: { question: Question; busy: boolean; answer: (part: Part) => void }) {
  switch (question.kind) {
    case "text":
      return null;
    case "link":
      return (
        <div class="buttons">
          {question.links
            .filter((link) => SAFE_URL.test(link))
            .map((link) => (
              <a key={link} class="button primary" href={link} target="_blank" rel="noopener noreferrer">
                Open {new URL(link).host || link} <span class="hidden">in a new tab</span>
              </a>
            ))}
          <button type="button" disabled={busy} onClick={() => answer({ text: "Continue" })}>
            Continue
          </button>
        </div>
      );
    case "choices":
      return (
        <div class="choices" role="group" aria-label="Answers">
          {question.choices.map((choice, index) => (
            <button
              key={choice.value}
              type="button"
              class={question.isApproval && index === 0 ? "primary" : undefined}
              disabled={busy}
              title={choice.description}
              onClick={() => answer({ text: choice.value })}
            >
              {choice.label}
            </button>
          ))}
        </div>
      );
    case "fields":
      return <SchemaForm fields={question.fields} busy={busy} answer={(value) => answer({ data: value })} />;
  }
}

interface SchemaFormProps {
  fields: readonly Field[];
  busy: boolean;
  label?: string;
  submitText?: string;
  answer: (value: Json) => void;
}

export function SchemaForm({ fields, busy, label = "Answer by fields", submitText = "Send answer", answer }: SchemaFormProps) {
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    answer(formValues(fields, new FormData(event.currentTarget as HTMLFormElement)));
  };
  return (
    <form class="fields" onSubmit={submit} aria-label={label}>
      {fields.map((field) => (
        <FieldInput key={field.name} field={field} />
      ))}
      <button type="submit" class="primary" disabled={busy}>
        {busy ? "Sending" : submitText}
      </button>
    </form>
  );
}

function FieldInput({ field }: { field: Field }) {
  const descriptionId = field.description ? `about-${field.name}` : undefined;
  const common = { name: field.name, required: field.required, "aria-describedby": descriptionId };
  const text = typeof field.defaultValue === "string" || typeof field.defaultValue === "number" ? String(field.defaultValue) : undefined;
  const label = (
    <>
      {field.label}
      {field.required && field.type !== "checkbox" && <span aria-hidden="true"> *</span>}
    </>
  );
  return (
    <div class="field">
      {field.type === "checkbox" ? (
        <label>
          <input type="checkbox" name={field.name} defaultChecked={field.defaultValue === true} aria-describedby={descriptionId} /> {label}
        </label>
      ) : (
        <label>
          <span>{label}</span>
          {field.type === "select" ? (
            <select {...common} defaultValue={text ?? ""}>
              {(!field.required || text === undefined) && <option value="">choose</option>}
              {field.choices.map((choice) => (
                <option key={choice.value} value={choice.value}>
                  {choice.label}
                </option>
              ))}
            </select>
          ) : field.type === "textarea" ? (
            <textarea {...common} rows={3} maxLength={field.maxLength} defaultValue={text} />
          ) : (
            <input
              {...common}
              type={field.type as "text"} // the other types take the same attributes
              min={field.min}
              max={field.max}
              step={field.step}
              maxLength={field.maxLength}
              pattern={field.pattern}
              defaultValue={text}
            />
          )}
        </label>
      )}
      {field.description && (
        <small id={descriptionId} class="faint">
          {field.description}
        </small>
      )}
    </div>
  );
}
