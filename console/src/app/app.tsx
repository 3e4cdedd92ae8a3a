// The frame around the pages: navigation, credentials and shortcuts.

import type { ReadonlySignal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { AgentsPage } from "../agents/agents_page";
import { OverviewPage } from "../overview/overview_page";
import { agents, catalogError } from "../shared/agents";
import { signInRequest } from "../shared/api";
import { ErrorMessage } from "../shared/components";
import { EmptyState, Page, useTitle } from "../shared/page";
import { replaceRoute, route, section, selectedTask } from "../shared/route";
import { canOperate, canViewAll } from "../shared/sign_in";
import { NewTask } from "../task/compose/new_task";
import { TaskView } from "../task/task_view";
import { FailuresPage } from "../tasks/failures_page";
import { listTitle } from "../tasks/filters";
import { findTenant } from "../tasks/task_finder";
import { TaskList } from "../tasks/task_list";
import { UsagePage } from "../usage/usage_page";
import { WebhooksPage } from "../webhooks/webhooks_page";
import { AccountMenu, AccountPage } from "./account";
import { Mark } from "./mark";
import { ShortcutsDialog } from "./shortcuts";
import { SignInPage } from "./sign_in_page";
import { paneStyle, Splitter } from "./splitter";

interface NavigationItem {
  id: string;
  name: string;
  /** The path of its icon, of 20 by 20 units. */
  icon: string;
  /** Who sees it, unless all do: operators and viewers, or operators only. */
  sees?: ReadonlySignal<boolean>;
}

const NAVIGATION: readonly NavigationItem[] = [
  { id: "overview", name: "Overview", icon: "M3 10h3l2-5 4 10 2-5h3", sees: canViewAll },
  { id: "tasks", name: "Tasks", icon: "M3 5h2M3 10h2M3 15h2M8 5h9M8 10h9M8 15h9" },
  { id: "failures", name: "Failures", icon: "M10 3.5 17.5 16.5H2.5zM10 8.5v3.5M10 14v.5", sees: canOperate },
  { id: "agents", name: "Agents", icon: "M4 7h12v9H4zM10 7V3.5M7.5 11v1.5M12.5 11v1.5" },
  { id: "usage", name: "Usage", icon: "M4 17v-6M8 17V7M12 17v-8M16 17V3" },
  { id: "webhooks", name: "Webhooks", icon: "M3 10h11M10 5.5l4.5 4.5-4.5 4.5M17 4v12", sees: canViewAll },
];

export function App() {
  const current = section.value;
  if (signInRequest.value) return <SignInPage />;
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>
        Skip to the content
      </a>
      <header class="top">
        <h1>
          <a href="#/">
            <Mark /> Dragoman
          </a>
        </h1>
        <nav aria-label="Console">
          {NAVIGATION.filter((item) => item.sees?.value ?? true).map((item) => (
            <a key={item.id} href={`#/${item.id}`} data-name={item.name} aria-current={current === item.id ? "page" : undefined}>
              <svg viewBox="0 0 20 20" aria-hidden="true">
                <path d={item.icon} />
              </svg>
              {item.name}
            </a>
          ))}
        </nav>
        <a class="button primary" href="#/new" aria-current={current === "new" ? "page" : undefined}>
          New task
        </a>
        <span class="space" />
        <AccountMenu />
      </header>
      {catalogError.value && current !== "agents" && <ErrorMessage error={catalogError.value} />}
      <main id="main" tabIndex={-1}>
        <SectionContent section={current} />
      </main>
      <ShortcutsDialog />
    </>
  );
}

function SectionContent({ section }: { section: string }) {
  switch (section) {
    case "overview":
      return <OverviewPage />;
    case "tasks": {
      const [, id, ...rest] = route.value.path;
      return id && rest.length === 0 ? <TaskById key={id} id={id} /> : <TasksSection />;
    }
    case "new":
      return agents.value ? <NewTask /> : null;
    case "agents":
      return <AgentsPage />;
    case "usage":
      return <UsagePage />;
    case "failures":
      return <FailuresPage />;
    case "webhooks":
      return <WebhooksPage />;
    case "account":
      return <AccountPage />;
    default:
      return <PageNotFound />;
  }
}

/** The list, and the selected item beside it. */
function TasksSection() {
  const task = selectedTask.value;
  useTitle(task ? undefined : listTitle());
  return (
    <div class={task ? "split chosen" : "split alone"} style={paneStyle()}>
      <TaskList />
      {task && <Splitter />}
      {task && (
        <div class="detail">
          <TaskView key={`${task.tenant}/${task.id}`} tenant={task.tenant} id={task.id} />
        </div>
      )}
    </div>
  );
}

/** An address with the id of a task and without its agent, as people type it: leads to the task if there is one. */
function TaskById({ id }: { id: string }) {
  const [error, setError] = useState<unknown>();
  const [isMissing, setIsMissing] = useState(false);
  const known = agents.value;
  useEffect(() => {
    if (!known) return;
    findTenant(
      id,
      known.map((agent) => agent.id),
    ).then((tenant) => (tenant ? replaceRoute(["tasks", tenant, id], Object.fromEntries(route.value.query)) : setIsMissing(true)), setError);
  }, [id, !known]);
  if (error) return <ErrorMessage error={error} />;
  if (!isMissing) return null;
  return (
    <Page title="Task not found">
      <EmptyState title={`You see no task with the id ${id}.`}>
        <p>
          It may belong to another principal, or it was erased. <a href="#/tasks">See all tasks</a>
        </p>
      </EmptyState>
    </Page>
  );
}

/** For addresses of no page, such as those of an earlier version. */
function PageNotFound() {
  return (
    <Page title="Page not found">
      <EmptyState title={`The console has no page ${route.value.path.join("/")}.`}>
        <p>
          <a href="#/">Go to the start page</a>, or <a href="#/tasks">look for a task</a>.
        </p>
      </EmptyState>
    </Page>
  );
}
