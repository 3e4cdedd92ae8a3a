// Why a task or a step failed, for operators: the exception, where it was raised, and a link to equal failures.

import type { ComponentChildren } from "preact";
import { formatTimeOfDay } from "../shared/format";
import { failureTitle, type Failure } from "../shared/messages";
import { usePolling } from "../shared/polling";
import { href } from "../shared/route";
import { canOperate } from "../shared/sign_in";
import { explainTask } from "../tasks/task_finder";

/** In narrower windows the frames are folded: the task has to stay in reach. */
const WIDE_PX = 700;

interface FailureNoticeProps {
  id: string;
  tenant: string;
  /** What the caller is told. */
  callerText: string;
  /** The notice with that text: for others than operators the only one. */
  children: ComponentChildren;
}

export function FailureNotice({ id, tenant, callerText, children }: FailureNoticeProps) {
  const { value } = usePolling((stop) => (canOperate.value ? explainTask(id, tenant, stop) : Promise.resolve(undefined)), 0, [id, tenant, canOperate.value]);
  const explanation = value?.find((one) => one.failure);
  if (!explanation?.failure) return <>{children}</>;
  return (
    <>
      <section class="notice failure" data-state="failed" aria-label="Failure">
        <h3>{failureTitle(explanation.failure)}</h3>
        <FailureText failure={explanation.failure} />
        <a href={href(["failures"], { cause: explanation.cause ?? "" })}>Tasks that failed like this</a>
      </section>
      {callerText !== failureTitle(explanation.failure) && children}
    </>
  );
}

/** What is known of a failed attempt, of a turn or a step, besides its title. */
export function FailureText({ failure: { step, attempt, ended, frames = [], causes = [] } }: { failure: Failure }) {
  return (
    <>
      <p class="faint">
        {step && (
          <>
            in step <b>{step}</b>,{" "}
          </>
        )}
        attempt {attempt ?? 1}
        {ended && `, ${formatTimeOfDay(ended)}`}
      </p>
      {frames.length > 0 && (
        <details open={innerWidth >= WIDE_PX}>
          <summary>Where it was raised</summary>
          <ol class="frames" aria-label="Where it was raised, innermost first">
            {frames.toReversed().map((frame, index) => (
              <li key={index}>
                <span class="faint" title={frame.file}>
                  {frame.file.split("/").slice(-2).join("/")}:{frame.line} in <b>{frame.function}</b>
                </span>
                <pre>{frame.code}</pre>
              </li>
            ))}
          </ol>
        </details>
      )}
      {causes.map((cause) => (
        <p key={cause} class="faint">
          after {cause}
        </p>
      ))}
    </>
  );
}
