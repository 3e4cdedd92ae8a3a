// One task: its properties, actions and tabs.

import { useEffect, useMemo, useState } from "preact/hooks";
import { Compose } from "./compose/message_form";
import { Conversation, Results } from "./conversation";
import { Execution } from "./execution";
import type { Fold } from "./projection";
import { Followed } from "./task_follower";
import { made } from "../tasks/listing";
import { named } from "../shared/agents";
import { useTitle } from "../shared/page";
import { Parts } from "../shared/content/parts";
import { Ago, Copy, Facts, Problem, State, Tabs } from "../shared/components";
import { Pushes } from "./push_configs";
import { Answer } from "./compose/answer_form";
import { offerOf } from "./compose/question";
import { href, refine, route } from "../shared/route";
import { full, lasting, now, plural, short, took } from "../shared/format";
import { Failure } from "../shared/api";
import { Actions } from "./task_actions";
import { kept } from "../tasks/filters";
import { agentOf, DEFAULT_SCOPE, scopeOf } from "../shared/tenant";
import { isTerminal, isWaiting, shown } from "../shared/messages";
import { Timeline } from "./timeline";
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
  const principal = followed.principal.value;
  const failed = followed.error.value;
  const hidden = failed instanceof Failure && failed.status === 404;
  const title = fold.asked || `Task ${short(id)}`;
  useTitle([title.slice(0, TITLE), ...(known ? [shown(fold.state)] : [])].join(" · "));
  const usual = hidden ? "execution" : "conversation";
  const tabs = [
    { id: "conversation", name: "Conversation", count: fold.last || undefined },
    { id: "artifacts", name: "Artifacts", count: fold.artifacts.size || undefined },
    { id: "timeline", name: "Timeline" },
    { id: "execution", name: "Execution" },
    { id: "pushes", name: "Pushes" },
    { id: "wire", name: "Wire" },
  ];
  const wanted = route.value.query.get("tab");
  const at = tabs.find((tab) => tab.id === wanted)?.id ?? usual;
  const show = (tab: string) => refine({ tab, event: "" });
  const task = { id, context: fold.context, state: fold.state };
  return (
    <article class="task" aria-label={`Task ${id}`}>
      <header class="head">
        <a class="back" href={href(["tasks"], kept())}>
          ‹ Tasks
        </a>
        <h2 id="task-title" tabIndex={-1}>
          {title}
        </h2>
        {known && <Actions tenant={tenant} id={id} state={fold.state} first={fold.first} principal={principal} />}
        <Summary tenant={tenant} id={id} fold={fold} known={known} principal={principal} tick={followed.tick.value} />
        <Ids tenant={tenant} id={id} context={fold.context} />
      </header>
      {hidden ? (
        <p class="problem" role="alert">
          You cannot see this task: none of your tasks has this id.
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
      {/* below the tabs, which must not move when a question is answered */}
      <Notice tenant={tenant} task={task} fold={fold} own={!principal} tick={followed.tick.value} />
      <div class="panel" role="tabpanel" id="panel" aria-labelledby={`tab-${at}`} tabIndex={0}>
        {at === "conversation" && <Conversation fold={fold} current={followed.current.value} tick={followed.tick.value} />}
        {at === "artifacts" && <Results fold={fold} />}
        {at === "timeline" && <Timeline id={id} tenant={tenant} fold={fold} state={fold.state} last={fold.last} />}
        {at === "execution" && <Execution id={id} tenant={tenant} state={fold.state} last={fold.last} />}
        {at === "pushes" && <Pushes id={id} tenant={tenant} state={fold.state} />}
        {at === "wire" && <WireView id={id} tenant={tenant} last={fold.last} />}
      </div>
      {known && principal && <p class="foreign">This task belongs to {principal}. Only its owner can write to it.</p>}
      {known && !principal && <Compose key={`${tenant}/${id}`} tenant={tenant} task={task} />}
    </article>
  );
}

/** The longest name of a task in the title of the page. */
const TITLE = 60;

interface Summed {
  tenant: string;
  id: string;
  fold: Fold;
  known: boolean;
  /** The owner, if it is not the caller. */
  principal: string;
  tick: number;
}

/** State, duration, agent, what it cost, and when something happened last. */
function Summary({ tenant, id, fold, known, principal }: Summed) {
  const over = isTerminal(fold.state);
  const begins = made(id) || new Date(fold.lines[0]?.time ?? 0).getTime();
  const changed = new Date(fold.since || 0).getTime();
  const lasted = begins && changed ? Math.max(0, (over ? changed : now.value) - begins) : 0;
  const { tokens, cost } = fold.usage ?? {};
  return (
    <p class="summary">
      {known && <State state={fold.state} />}
      <a href={href(["agents", agentOf(tenant)])}>{named(tenant)}</a>
      {principal && <span title="The principal that owns this task">{principal}</span>}
      {lasted > 0 && (over || lasted >= 1000) && (
        <span title="from the first message to the end of the task">{over ? `took ${took(lasted)}` : lasting(lasted)}</span>
      )}
      {tokens ? <span class="extra">{plural(tokens, "token")}</span> : null}
      {cost ? <span class="extra" title="in the currency of the agent">cost {Number(cost.toPrecision(3))}</span> : null}
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
      <summary>Ids</summary>
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

interface Noticed {
  tenant: string;
  task: { id: string; context: string; state: string };
  fold: Fold;
  /** The task is the caller's own. */
  own: boolean;
  tick: number;
}

/** The question with a form to answer it, or the error, in front of everything else. */
function Notice({ tenant, task, fold, own }: Noticed) {
  const message = fold.notice;
  if (!message) return null;
  const waits = isWaiting(task.state);
  const parts = waits ? message.parts.filter((part) => !offerOf(part)) : message.parts;
  const [, error] = /\berror id ([0-9a-f]{8,})\b/.exec(parts.map((part) => part.text ?? "").join(" ")) ?? [];
  return (
    <section class="notice" data-state={shown(task.state)} aria-label={waits ? "Question" : "Error"}>
      <Parts parts={parts} usual="markdown" />
      {!waits && error && <Copy value={error} name="the error id, by which the log has the cause" />}
      {waits && own && <Answer key={message.messageId} tenant={tenant} task={task} message={message} />}
    </section>
  );
}
