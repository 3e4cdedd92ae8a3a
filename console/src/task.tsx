// One task: its properties, actions and tabs.

import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useState } from "preact/hooks";
import { Compose } from "./compose";
import { Conversation, Results } from "./conversation";
import { Execution } from "./execution";
import type { Fold } from "./fold";
import { Followed } from "./followed";
import { made } from "./listing";
import { named } from "./catalogue";
import { useTitle } from "./page";
import { Ago, Copy, Facts, Problem, State, Tabs } from "./pieces";
import { Parts } from "./parts";
import { Pushes } from "./pushes";
import { href, refine, route } from "./route";
import { full, now, plural, short, took } from "./say";
import { call, Failure, segment } from "./server";
import { kept } from "./tasks";
import { agentOf, DEFAULT_SCOPE, pathOf, scopeOf } from "./tenant";
import { isTerminal, isWaiting, shown, type Message, type Task as A2ATask } from "./wire";
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
  const usual = hidden ? "execution" : "conversation";
  const tabs = [
    { id: "conversation", name: "Conversation", count: fold.last || undefined },
    { id: "artifacts", name: "Artifacts", count: fold.artifacts.size || undefined },
    { id: "execution", name: "Execution" },
    { id: "pushes", name: "Pushes" },
    { id: "wire", name: "Wire" },
  ];
  const wanted = route.value.query.get("tab");
  const at = tabs.find((tab) => tab.id === wanted)?.id ?? usual;
  const show = (tab: string) => refine({ tab, event: "" });
  const title = fold.asked || `Task ${short(id)}`;
  useTitle(title);
  return (
    <article class="task" aria-label={`Task ${id}`}>
      <header class="head">
        <a class="back" href={href(["tasks"], kept())}>
          ‹ Tasks
        </a>
        <h2>{title}</h2>
        <Cancel tenant={tenant} id={id} state={fold.state} known={known} />
        <Summary tenant={tenant} id={id} fold={fold} known={known} tick={followed.tick.value} />
      </header>
      <Ids tenant={tenant} id={id} context={fold.context} />
      <Notice state={fold.state} message={fold.notice} />
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
        {at === "conversation" && <Conversation fold={fold} current={followed.current.value} tick={followed.tick.value} />}
        {at === "artifacts" && <Results fold={fold} />}
        {at === "execution" && <Execution id={id} tenant={tenant} fold={fold} state={fold.state} last={fold.last} />}
        {at === "pushes" && <Pushes id={id} tenant={tenant} state={fold.state} />}
        {at === "wire" && <WireView id={id} tenant={tenant} last={fold.last} />}
      </div>
      {known && <Compose key={`${tenant}/${id}`} tenant={tenant} task={{ id, context: fold.context, state: fold.state }} />}
    </article>
  );
}

/** State, duration, agent, what it cost, and when something happened last. */
function Summary({ tenant, id, fold, known }: { tenant: string; id: string; fold: Fold; known: boolean; tick: number }) {
  const over = isTerminal(fold.state);
  const begins = made(id) || new Date(fold.lines[0]?.time ?? 0).getTime();
  const changed = new Date(fold.since || 0).getTime();
  const lasted = begins && changed ? Math.max(0, (over ? changed : now.value) - begins) : undefined;
  const { tokens, cost } = fold.usage ?? {};
  return (
    <p class="summary">
      {known && <State state={fold.state} />}
      <a href={href(["agents", agentOf(tenant)])}>{named(tenant)}</a>
      {lasted !== undefined && <span title="from the first message to the end of the task">{over ? `took ${took(lasted)}` : took(Math.floor(lasted / 1000) * 1000)}</span>}
      {tokens ? <span>{plural(tokens, "token")}</span> : null}
      {cost ? <span title="in the currency of the agent">cost {Number(cost.toPrecision(3))}</span> : null}
      {known && (
        <span class="faint">
          {over ? "ended" : "last event"} <Ago time={over ? changed : Math.min(fold.heard, now.value)} after=" ago" />
        </span>
      )}
    </p>
  );
}

/** Ids, created time: small, and folded in narrow windows. */
function Ids({ tenant, id, context }: { tenant: string; id: string; context: string }) {
  const [open] = useState(() => matchMedia("(min-width: 900px)").matches);
  const scope = scopeOf(tenant);
  return (
    <details class="ids" open={open}>
      <summary>Ids and dates</summary>
      <Facts
        of={[
          ["task", <Copy value={id} name="the task id" />],
          [
            "context",
            context && (
              <Copy value={context} name="the context id">
                <a href={href(["tasks"], { context })}>
                  <code>{context}</code>
                </a>
              </Copy>
            ),
          ],
          ["scope", scope !== DEFAULT_SCOPE && <a href={href(["tasks"], { scope })}>{scope}</a>],
          ["created", made(id) ? <time dateTime={full(made(id))}>{full(made(id)).replace("T", " ").slice(0, 19)} UTC</time> : undefined],
        ]}
      />
    </details>
  );
}

/** The question, or the error, in front of everything else. */
function Notice({ state, message }: { state: string; message: Message | undefined }) {
  if (!message) return null;
  const waits = isWaiting(state);
  return (
    <section class="notice" data-state={shown(state)} aria-label={waits ? "Question" : "Error"}>
      <Parts parts={message.parts} usual="markdown" />
    </section>
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
