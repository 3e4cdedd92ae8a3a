// The contents of a durable step: arguments, result, failed attempts. They are loaded when the step is opened.

import { ApiError, call, encodeSegment } from "../shared/api";
import { ErrorMessage, FailureText } from "../shared/components";
import { JsonContent, TextContent } from "../shared/content/text";
import { formatBytes, formatNumber } from "../shared/format";
import { failureTitle, type Explanation, type Json, type StepText, type TaskStep } from "../shared/messages";
import { usePolling } from "../shared/polling";

interface StepContentsProps {
  /** The explanation of the task, with its principal. */
  explanation: Explanation;
  step: TaskStep;
}

export function StepContents({ explanation, step }: StepContentsProps) {
  const { taskId, agent = "", scope = "", principal = "" } = explanation;
  const { value, error } = usePolling(
    async (signal) => {
      const query = new URLSearchParams({ agent, scope, principal, name: step.name, turn: step.turn ?? "0" });
      const result = await call<{ steps: TaskStep[] }>(`operations/tasks/${encodeSegment(taskId)}/steps/contents?${query}`, { signal });
      return result.steps[0];
    },
    0,
    [taskId, agent, scope, principal, step.name, step.turn],
    [step.state, step.attempt],
  );
  if (error instanceof ApiError && error.status === 403) return <p class="faint">Operators see arguments, result and failures here.</p>;
  if (!value) return error ? <ErrorMessage error={error} /> : <p class="faint">Loading</p>;
  const { input, failures = [] } = value.details ?? {};
  return (
    <>
      {failures.length > 0 && (
        <>
          <h3>Failed attempts {failures.length > 1 && <span class="count">{failures.length}, the last one first</span>}</h3>
          <ol>
            {failures.toReversed().map((failure, index) => (
              <li key={index} class="failure">
                <p class="bad">{failureTitle(failure)}</p>
                <FailureText failure={failure} />
              </li>
            ))}
          </ol>
        </>
      )}
      <h3>Arguments</h3>
      <Arguments input={input} />
      {value.state === "TASK_STEP_STATE_DONE" && (
        <>
          <h3>
            Result <span class="faint">{formatBytes(Number(value.resultBytes ?? 0))}</span>
          </h3>
          <Result text={value.text ?? {}} />
        </>
      )}
    </>
  );
}

function Arguments({ input }: { input?: string }) {
  if (!input) return <p class="faint">They are not known: the step has no function, or its values could not be shown.</p>;
  try {
    const value = JSON.parse(input) as Json;
    if (Object.keys(value as object).length === 0) return <p class="faint">None</p>;
    return <JsonContent value={value} />;
  } catch {
    return <TextContent text={input} format="plain" />; // of a worker in another language
  }
}

function Result({ text: { text, mediaType = "", omitted } }: { text: StepText }) {
  const count = Number(omitted ?? 0);
  if (!text) return <p class="faint">{count ? `${formatBytes(count)} of ${mediaType || "content"}, which is not text` : "Empty"}</p>;
  return (
    <>
      {count > 0 && <p class="faint">The first {formatNumber(text.length)} characters; {formatNumber(count)} more are in an export.</p>}
      <TextContent text={text} format={mediaType === "text/markdown" ? "markdown" : mediaType === "application/json" ? "json" : "plain"} />
    </>
  );
}
