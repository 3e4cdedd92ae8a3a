// The frame around the pages: navigation, credentials and shortcuts.

import { Agents } from "../agents/agents_page";
import { agents, unreachable } from "../shared/agents";
import { New } from "../task/compose/message_form";
import { listTitle } from "../tasks/filters";
import { OverviewPage } from "../overview/overview_page";
import { Empty, Page, useTitle } from "../shared/page";
import { Problem } from "../shared/components";
import { chosen, place, route } from "../shared/route";
import { Credentials, CredentialsButton } from "./credentials";
import { choose as chooseLook, look, LOOKS, type Look } from "../shared/theme";
import { helping, Help } from "./shortcuts";
import { seesAll } from "../shared/sign_in";
import { Task } from "../task/task_view";
import { Tasks } from "../tasks/task_list";
import { UsagePage } from "../usage/usage_page";
import { Webhooks } from "../webhooks/webhooks_page";

interface Place {
  id: string;
  name: string;
  /** The path of its icon, of 20 by 20 units. */
  icon: string;
  /** Only operators and viewers see it. */
  all?: boolean;
}

const PLACES: readonly Place[] = [
  { id: "overview", name: "Overview", icon: "M3 10h3l2-5 4 10 2-5h3", all: true },
  { id: "tasks", name: "Tasks", icon: "M3 5h2M3 10h2M3 15h2M8 5h9M8 10h9M8 15h9" },
  { id: "agents", name: "Agents", icon: "M4 7h12v9H4zM10 7V3.5M7.5 11v1.5M12.5 11v1.5" },
  { id: "usage", name: "Usage", icon: "M4 17v-6M8 17V7M12 17v-8M16 17V3" },
  { id: "webhooks", name: "Webhooks", icon: "M3 10h11M10 5.5l4.5 4.5-4.5 4.5M17 4v12", all: true },
];

export function App() {
  const at = place.value;
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>
        Skip to the content
      </a>
      <header class="top">
        <h1>Dragoman</h1>
        <nav aria-label="Console">
          {PLACES.filter((one) => !one.all || seesAll.value).map((one) => (
            <a key={one.id} href={`#/${one.id}`} aria-current={at === one.id ? "page" : undefined}>
              <svg viewBox="0 0 20 20" aria-hidden="true">
                <path d={one.icon} />
              </svg>
              {one.name}
            </a>
          ))}
        </nav>
        <a class="button primary" href="#/new" aria-current={at === "new" ? "page" : undefined}>
          New task
        </a>
        <span class="space" />
        <label class="look">
          <span class="hidden">Colors</span>
          <select value={look.value} onChange={(event) => chooseLook(event.currentTarget.value as Look)}>
            {LOOKS.map((one) => (
              <option key={one.id} value={one.id}>
                {one.name}
              </option>
            ))}
          </select>
        </label>
        <CredentialsButton />
        <button type="button" class="keyboard" aria-label="Keyboard shortcuts" onClick={() => (helping.value = true)}>
          ?
        </button>
      </header>
      {unreachable.value && at !== "agents" && <Problem error={unreachable.value} />}
      <main id="main" tabIndex={-1}>
        <Shown at={at} />
      </main>
      <Credentials />
      <Help />
    </>
  );
}

function Shown({ at }: { at: string }) {
  switch (at) {
    case "overview":
      return <OverviewPage />;
    case "tasks":
    case "new":
      return <Work />;
    case "agents":
      return <Agents />;
    case "usage":
      return <UsagePage />;
    case "webhooks":
      return <Webhooks />;
    default:
      return <Unknown />;
  }
}

/** The list, and the selected item beside it. */
function Work() {
  const task = chosen.value;
  const aside = task !== null || place.value === "new";
  useTitle(task ? undefined : aside ? "New task" : listTitle());
  return (
    <div class={aside ? "split chosen" : "split alone"}>
      <Tasks />
      {aside && (
        <div class="detail">
          {task ? <Task key={`${task.tenant}/${task.id}`} tenant={task.tenant} id={task.id} /> : agents.value && <New />}
        </div>
      )}
    </div>
  );
}

/** For addresses of no page, such as those of an earlier version. */
function Unknown() {
  return (
    <Page title="Page not found">
      <Empty title={`The console has no page ${route.value.path.join("/")}.`}>
        <p>
          <a href="#/">Go to the start page</a>, or <a href="#/tasks">look for a task</a>.
        </p>
      </Empty>
    </Page>
  );
}
