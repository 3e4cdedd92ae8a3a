// One task: its header, question or error, tabs, side panel and form.

import { useEffect, useMemo } from "preact/hooks";
import { agentName } from "../shared/agents";
import { ApiError } from "../shared/api";
import { CopyableValue, ErrorMessage, StateLabel, Tabs } from "../shared/components";
import { Parts } from "../shared/content/parts";
import { shortId, withoutMarkdown } from "../shared/format";
import { isWaiting, stateText } from "../shared/messages";
import { useKnownQuery, useTitle } from "../shared/page";
import { href, route, updateQuery } from "../shared/route";
import { caller, canViewAll } from "../shared/sign_in";
import { agentOf } from "../shared/tenant";
import { filterQuery } from "../tasks/filters";
import { AnswerForm } from "./compose/answer_form";
import { MessageForm } from "./compose/message_form";
import { offeredAnswers, questionOf } from "./compose/question";
import { Artifacts, Conversation, countMessages } from "./conversation";
import { Details, detailsAreOpen, durationText, toggleDetails } from "./details";
import { Execution } from "./execution";
import { FailureNotice } from "./failure";
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
  const title = withoutMarkdown(projection.requestText) || `Task ${shortId(id)}`;
  useTitle([title.slice(0, MAX_TITLE_LENGTH), ...(known ? [stateText(projection.state)] : [])].join(" · "));
  // What operators ask of the tasks of others is where the time went; callers read the answer.
  const defaultTab = notFound ? "execution" : caller.value && canViewAll.value ? "timeline" : "conversation";
  const tabs = [
    { id: "conversation", name: "Conversation", count: countMessages(projection) || undefined },
    { id: "artifacts", name: "Artifacts", count: projection.artifacts.size || undefined },
    { id: "timeline", name: "Timeline" },
    { id: "execution", name: "Execution" },
    { id: "pushes", name: "Pushes" },
    { id: "wire", name: "Wire" },
  ];
  useKnownQuery(
    "tab",
    tabs.map((tab) => tab.id),
  );
  const requestedTab = route.value.query.get("tab");
  const selectedTab = tabs.find((tab) => tab.id === requestedTab)?.id ?? defaultTab;
  const selectTab = (tab: string) => updateQuery({ tab, event: "" });
  const task = { id, context: projection.context, state: projection.state };
  const isQuestion = isWaiting(projection.state);
  const isInConversation = isQuestion && selectedTab === "conversation";
  const notice = <Notice tenant={tenant} task={task} projection={projection} isOwn={!principal} version={follower.version.value} />;
  const offersAnswers = isQuestion && !principal && questionOf(projection.state, projection.notice?.parts ?? []).kind !== "text";
  return (
    <article class={detailsAreOpen.value ? "task with-details" : "task"} aria-label={`Task ${id}`}>
      <header class="head">
        <a class="back" href={href(["tasks"], filterQuery())}>
          ‹ Tasks
        </a>
        {known && <StateLabel state={projection.state} />}
        <h2 id="task-title" tabIndex={-1} title={title}>
          {title}
        </h2>
        <p class="summary">
          <a href={href(["agents", agentOf(tenant)])}>{agentName(tenant)}</a>
          {principal && <span title="The principal that owns this task">{principal}</span>}
          {known && <Duration id={id} projection={projection} version={follower.version.value} />}
        </p>
        {known && <TaskActions tenant={tenant} id={id} state={projection.state} firstMessage={projection.firstMessage} principal={principal} />}
        {known && (
          <button type="button" class="details-toggle" aria-expanded={detailsAreOpen.value} aria-controls="details" onClick={toggleDetails}>
            Details
          </button>
        )}
      </header>
      {notFound ? (
        <p class="problem" role="alert">
          You cannot see this task: none of your tasks has this id.
        </p>
      ) : (
        <ErrorMessage error={error} />
      )}
      {known && detailsAreOpen.value && (
        <Details tenant={tenant} id={id} projection={projection} principal={principal} version={follower.version.value} />
      )}
      <div class="bar">
        <Tabs tabs={tabs} selected={selectedTab} label="Task tabs" onSelect={selectTab} />
        <span class="link" data-link={connection.value} role="status">
          {CONNECTION_TEXTS[connection.value]}
        </span>
      </div>
      {/* below the tabs, which must not move when a question is answered; a question is at its place in the conversation */}
      {projection.state === "TASK_STATE_FAILED" ? (
        <FailureNotice id={id} tenant={tenant} callerText={(projection.notice?.parts ?? []).map((part) => part.text ?? "").join(" ")}>
          {notice}
        </FailureNotice>
      ) : (
        !isInConversation && notice
      )}
      <div class="panel" role="tabpanel" id="panel" aria-labelledby={`tab-${selectedTab}`} tabIndex={0}>
        {selectedTab === "conversation" && (
          <Conversation
            projection={projection}
            isCaughtUp={follower.isCaughtUp.value}
            version={follower.version.value}
            notice={projection.notice}
            question={isInConversation ? notice : undefined}
          />
        )}
        {selectedTab === "artifacts" && <Artifacts projection={projection} />}
        {selectedTab === "timeline" && <Timeline id={id} tenant={tenant} projection={projection} state={projection.state} last={projection.last} />}
        {selectedTab === "execution" && <Execution id={id} tenant={tenant} state={projection.state} last={projection.last} />}
        {selectedTab === "pushes" && <PushConfigs id={id} tenant={tenant} state={projection.state} />}
        {selectedTab === "wire" && <WireView id={id} tenant={tenant} last={projection.last} />}
      </div>
      {known && principal && <p class="other-principal">This task belongs to {principal}. Only its owner can write to it.</p>}
      {known && !principal && (
        <MessageForm key={`${tenant}/${id}`} tenant={tenant} task={task} isCollapsed={offersAnswers} version={projection.notice?.messageId ?? ""} />
      )}
    </article>
  );
}

function Duration({ id, projection }: { id: string; projection: TaskProjection; version: number }) {
  const text = durationText(id, projection);
  return text ? <span title="from the first message to the end of the task">{text}</span> : null;
}

/** The longest name of a task in the title of the page. */
const MAX_TITLE_LENGTH = 60;

interface NoticeProps {
  tenant: string;
  task: { id: string; context: string; state: string };
  projection: TaskProjection;
  /** The task is the caller's own. */
  isOwn: boolean;
  version: number;
}

/** The question with a form to answer it, or the error: the only place where it is shown. */
function Notice({ tenant, task, projection, isOwn }: NoticeProps) {
  const message = projection.notice;
  if (!message) return null;
  const isQuestion = isWaiting(task.state);
  const parts = isQuestion && isOwn ? message.parts.filter((part) => !offeredAnswers(part)) : message.parts;
  const [, error] = /\berror id ([0-9a-f]{8,})\b/.exec(parts.map((part) => part.text ?? "").join(" ")) ?? [];
  return (
    <section class="notice" data-state={stateText(task.state)} aria-label={isQuestion ? "Question" : "Error"}>
      <Parts parts={parts} defaultFormat="markdown" />
      {!isQuestion && error && <CopyableValue value={error} name="the error id, by which the log has the cause" />}
      {isQuestion && isOwn && <AnswerForm key={message.messageId} tenant={tenant} task={task} message={message} />}
    </section>
  );
}
