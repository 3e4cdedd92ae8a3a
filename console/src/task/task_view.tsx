// One task: its properties, actions and tabs.

import { useEffect, useMemo, useState } from "preact/hooks";
import { agentName } from "../shared/agents";
import { ApiError } from "../shared/api";
import { CopyableValue, ErrorMessage, FactList, StateLabel, Tabs, TimeSince } from "../shared/components";
import { Parts } from "../shared/content/parts";
import { formatCoarseDuration, formatDuration, formatIsoTime, now, plural, shortId } from "../shared/format";
import { isTerminal, isWaiting, stateText } from "../shared/messages";
import { useTitle } from "../shared/page";
import { href, route, updateQuery } from "../shared/route";
import { agentOf, DEFAULT_SCOPE, scopeOf } from "../shared/tenant";
import { filterQuery } from "../tasks/filters";
import { creationTime } from "../tasks/listing";
import { AnswerForm } from "./compose/answer_form";
import { MessageForm } from "./compose/message_form";
import { offeredAnswers } from "./compose/question";
import { Artifacts, Conversation } from "./conversation";
import { Execution } from "./execution";
import type { TaskProjection } from "./projection";
import { PushConfigs } from "./push_configs";
import { TaskActions } from "./task_actions";
import { TaskFollower } from "./task_follower";
import { Timeline } from "./timeline";
import { WireView } from "./wire_view";

const CONNECTION_TEXTS = {
  connecting: "connecting",
  live: "live",
  lost: "connection lost, reconnecting",
  ended: "",
  failed: "",
} as const;

export function TaskView({ tenant, id }: { tenant: string; id: string }) {
  const follower = useMemo(() => new TaskFollower(tenant, id), [tenant, id]);
  useEffect(() => {
    follower.start();
    return () => follower.stop();
  }, [follower]);
  void follower.version.value;
  const { projection, connection } = follower;
  const known = projection.lines.length > 0;
  const principal = follower.principal.value;
  const error = follower.error.value;
  const notFound = error instanceof ApiError && error.status === 404;
  const title = projection.requestText || `Task ${shortId(id)}`;
  useTitle([title.slice(0, MAX_TITLE_LENGTH), ...(known ? [stateText(projection.state)] : [])].join(" · "));
  const defaultTab = notFound ? "execution" : "conversation";
  const tabs = [
    { id: "conversation", name: "Conversation", count: projection.last || undefined },
    { id: "artifacts", name: "Artifacts", count: projection.artifacts.size || undefined },
    { id: "timeline", name: "Timeline" },
    { id: "execution", name: "Execution" },
    { id: "pushes", name: "Pushes" },
    { id: "wire", name: "Wire" },
  ];
  const requestedTab = route.value.query.get("tab");
  const selectedTab = tabs.find((tab) => tab.id === requestedTab)?.id ?? defaultTab;
  const selectTab = (tab: string) => updateQuery({ tab, event: "" });
  const task = { id, context: projection.context, state: projection.state };
  return (
    <article class="task" aria-label={`Task ${id}`}>
      <header class="head">
        <a class="back" href={href(["tasks"], filterQuery())}>
          ‹ Tasks
        </a>
        <h2 id="task-title" tabIndex={-1}>
          {title}
        </h2>
        {known && <TaskActions tenant={tenant} id={id} state={projection.state} firstMessage={projection.firstMessage} principal={principal} />}
        <Summary tenant={tenant} id={id} projection={projection} known={known} principal={principal} version={follower.version.value} />
        <Ids tenant={tenant} id={id} context={projection.context} />
      </header>
      {notFound ? (
        <p class="problem" role="alert">
          You cannot see this task: none of your tasks has this id.
        </p>
      ) : (
        <ErrorMessage error={error} />
      )}
      <div class="bar">
        <Tabs tabs={tabs} selected={selectedTab} label="Task tabs" onSelect={selectTab} />
        <span class="link" data-link={connection.value} role="status">
          {CONNECTION_TEXTS[connection.value]}
        </span>
      </div>
      {/* below the tabs, which must not move when a question is answered */}
      <Notice tenant={tenant} task={task} projection={projection} isOwn={!principal} version={follower.version.value} />
      <div class="panel" role="tabpanel" id="panel" aria-labelledby={`tab-${selectedTab}`} tabIndex={0}>
        {selectedTab === "conversation" && (
          <Conversation projection={projection} isCaughtUp={follower.isCaughtUp.value} version={follower.version.value} />
        )}
        {selectedTab === "artifacts" && <Artifacts projection={projection} />}
        {selectedTab === "timeline" && <Timeline id={id} tenant={tenant} projection={projection} state={projection.state} last={projection.last} />}
        {selectedTab === "execution" && <Execution id={id} tenant={tenant} state={projection.state} last={projection.last} />}
        {selectedTab === "pushes" && <PushConfigs id={id} tenant={tenant} state={projection.state} />}
        {selectedTab === "wire" && <WireView id={id} tenant={tenant} last={projection.last} />}
      </div>
      {known && principal && <p class="other-principal">This task belongs to {principal}. Only its owner can write to it.</p>}
      {known && !principal && <MessageForm key={`${tenant}/${id}`} tenant={tenant} task={task} />}
    </article>
  );
}

/** The longest name of a task in the title of the page. */
const MAX_TITLE_LENGTH = 60;

interface SummaryProps {
  tenant: string;
  id: string;
  projection: TaskProjection;
  known: boolean;
  /** The owner, if it is not the caller. */
  principal: string;
  version: number;
}

/** State, duration, agent, cost, and the time of the last event. */
function Summary({ tenant, id, projection, known, principal }: SummaryProps) {
  const ended = isTerminal(projection.state);
  const startedAt = creationTime(id) || new Date(projection.lines[0]?.time ?? 0).getTime();
  const changedAt = new Date(projection.stateSince || 0).getTime();
  const elapsedMs = startedAt && changedAt ? Math.max(0, (ended ? changedAt : now.value) - startedAt) : 0;
  const { tokens, cost } = projection.usage ?? {};
  return (
    <p class="summary">
      {known && <StateLabel state={projection.state} />}
      <a href={href(["agents", agentOf(tenant)])}>{agentName(tenant)}</a>
      {principal && <span title="The principal that owns this task">{principal}</span>}
      {elapsedMs > 0 && (ended || elapsedMs >= 1000) && (
        <span title="from the first message to the end of the task">
          {ended ? `took ${formatDuration(elapsedMs)}` : formatCoarseDuration(elapsedMs)}
        </span>
      )}
      {tokens ? <span class="extra">{plural(tokens, "token")}</span> : null}
      {cost ? (
        <span class="extra" title="in the currency of the agent">
          cost {Number(cost.toPrecision(3))}
        </span>
      ) : null}
      {known && (
        <span class="faint">
          {ended ? "ended" : "last event"} <TimeSince time={ended ? changedAt : Math.min(projection.lastEventTime, now.value)} suffix=" ago" />
        </span>
      )}
    </p>
  );
}

/** Ids and creation time: small, and collapsed in narrow windows. */
function Ids({ tenant, id, context }: { tenant: string; id: string; context: string }) {
  const [open] = useState(() => matchMedia("(min-width: 900px)").matches);
  const scope = scopeOf(tenant);
  return (
    <details class="ids" open={open}>
      <summary>Ids</summary>
      <FactList
        items={[
          ["task", <CopyableValue value={id} name="the task id" />],
          [
            "context",
            context && (
              <CopyableValue value={context} name="the context id">
                <a href={href(["tasks"], { context })}>
                  <code>{context}</code>
                </a>
              </CopyableValue>
            ),
          ],
          ["scope", scope !== DEFAULT_SCOPE && <a href={href(["tasks"], { scope })}>{scope}</a>],
          [
            "created",
            creationTime(id) ? (
              <time dateTime={formatIsoTime(creationTime(id))}>{formatIsoTime(creationTime(id)).replace("T", " ").slice(0, 19)} UTC</time>
            ) : undefined,
          ],
        ]}
      />
    </details>
  );
}

interface NoticeProps {
  tenant: string;
  task: { id: string; context: string; state: string };
  projection: TaskProjection;
  /** The task is the caller's own. */
  isOwn: boolean;
  version: number;
}

/** The question with a form to answer it, or the error, in front of everything else. */
function Notice({ tenant, task, projection, isOwn }: NoticeProps) {
  const message = projection.notice;
  if (!message) return null;
  const isQuestion = isWaiting(task.state);
  const parts = isQuestion ? message.parts.filter((part) => !offeredAnswers(part)) : message.parts;
  const [, error] = /\berror id ([0-9a-f]{8,})\b/.exec(parts.map((part) => part.text ?? "").join(" ")) ?? [];
  return (
    <section class="notice" data-state={stateText(task.state)} aria-label={isQuestion ? "Question" : "Error"}>
      <Parts parts={parts} defaultFormat="markdown" />
      {!isQuestion && error && <CopyableValue value={error} name="the error id, by which the log has the cause" />}
      {isQuestion && isOwn && <AnswerForm key={message.messageId} tenant={tenant} task={task} message={message} />}
    </section>
  );
}
