// Why a task failed, for operators: the exception, where it was raised, and a link to equal failures.

import type { ComponentChildren } from "preact";
import { FailureText } from "../shared/components";
import { failureTitle } from "../shared/messages";
import { usePolling } from "../shared/polling";
import { href } from "../shared/route";
import { canOperate } from "../shared/sign_in";
import { explainTask } from "../tasks/task_finder";

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
      {callerText !== failureTitle(explanation.failure) && (
        <>
          <p class="told faint">What the caller is told:</p>
          {children}
        </>
      )}
    </>
  );
}
