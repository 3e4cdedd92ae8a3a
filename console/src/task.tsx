// One task: its properties, actions and tabs.

import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { Compose } from "./compose";
import { Execution } from "./execution";
import { Followed } from "./followed";
import { made } from "./listing";
import { named } from "./catalogue";
import { Ago, Copy, Facts, Problem, State, Tabs } from "./pieces";
import { Pushes } from "./pushes";
import { href, refine, route } from "./route";
import { call, Failure, segment } from "./server";
import { kept } from "./tasks";
import { agentOf, DEFAULT_SCOPE, pathOf, scopeOf } from "./tenant";
import { Results, Timeline } from "./timeline";
import { isTerminal, type Task as A2ATask } from "./wire";
import { WireView } from "./wire_view";

const LINKS = {
  connecting: "connecting",
  live: "live",
  lost: "connection lost, reconnecting",
  ended: "",
  failed: "",
} as const;

export function Task({ tenant, id }: { tenant: string; id: string }) {
  const followed = useMemo(() => new Followed(tenant, id), [tenant, id]);
  useEffect(() => {
    followed.start();
    return () => followed.stop();
  }, [followed]);
  void followed.tick.value;
  const { fold, link } = followed;
  const known = fold.lines.length > 0;
  const failed = followed.error.value;
  const hidden = failed instanceof Failure && failed.status === 404;
  const at = route.value.query.get("tab") ?? (hidden ? "execution" : "timeline");
  const show = (tab: string) => refine({ tab, event: "" });
  const tabs = [
    { id: "timeline", name: "Timeline", count: fold.last || undefined },
    { id: "result", name: "Artifacts", count: fold.artifacts.size || undefined },
    { id: "execution", name: "Execution" },
    { id: "pushes", name: "Pushes" },
    { id: "wire", name: "Wire" },
  ];
  return (
    <article class="task" aria-label={`Task ${id}`}>
      <header class="head">
        <a class="back" href={href(["tasks"], kept())}>
          ‹ Tasks
        </a>
        <h2>
          {known && <State state={fold.state} />}
          <Copy value={id} name="the task id" />
        </h2>
        <Cancel tenant={tenant} id={id} state={fold.state} known={known} />
      </header>
      <Facts
        of={[
          ["agent", <a href={href(["agents", agentOf(tenant)])}>{named(tenant)}</a>],
          ["scope", scopeOf(tenant) !== DEFAULT_SCOPE && <a href={href(["tasks"], { scope: scopeOf(tenant) })}>{scopeOf(tenant)}</a>],
          ["context", fold.context && <a href={href(["tasks"], { context: fold.context })}>{fold.context}</a>],
          ["created", made(id) ? <Ago time={made(id)} after=" ago" /> : undefined],
          ["changed", fold.since && <Ago time={fold.since} after=" ago" />],
        ]}
      />
      {hidden ? (
        <p class="problem" role="alert">
          None of your tasks has this id. The explanation for operators is below.
        </p>
      ) : (
        <Problem error={failed} />
      )}
      <div class="bar">
        <Tabs tabs={tabs} at={at} label="Task tabs" choose={show} />
        <span class="link" data-link={link.value} role="status">
          {LINKS[link.value]}
        </span>
      </div>
      <div class="panel" role="tabpanel" id="panel" aria-labelledby={`tab-${at}`} tabIndex={0}>
        {at === "timeline" && <Timeline fold={fold} />}
        {at === "result" && <Results fold={fold} />}
        {at === "execution" && <Execution id={id} tenant={tenant} fold={fold} state={fold.state} last={fold.last} />}
        {at === "pushes" && <Pushes id={id} tenant={tenant} state={fold.state} />}
        {at === "wire" && <WireView id={id} tenant={tenant} last={fold.last} />}
      </div>
      {known && <Compose key={`${tenant}/${id}`} tenant={tenant} task={{ id, context: fold.context, state: fold.state }} />}
    </article>
  );
}

function Cancel({ tenant, id, state, known }: { tenant: string; id: string; state: string; known: boolean }) {
  const asked = useSignal(false);
  const error = useSignal<unknown>(undefined);
  if (!known || isTerminal(state)) return null;
  const cancel = async () => {
    asked.value = true;
    error.value = undefined;
    try {
      await call<A2ATask>(`${pathOf(tenant)}/tasks/${segment(id)}:cancel`, { method: "POST" });
    } catch (failed) {
      error.value = failed;
    }
    asked.value = false;
  };
  return (
    <div class="actions">
      <Problem error={error.value} />
      <button type="button" class="danger" disabled={asked.value} onClick={() => void cancel()}>
        {asked.value ? "Canceling" : "Cancel task"}
      </button>
    </div>
  );
}
