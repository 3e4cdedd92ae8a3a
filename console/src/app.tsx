// The frame around the views: navigation, credentials and shortcuts.

import { Agents } from "./agents";
import { agents, unreachable } from "./catalogue";
import { New } from "./compose";
import { Load } from "./load";
import { Problem } from "./pieces";
import { chosen, place } from "./route";
import { Credentials, CredentialsButton } from "./credentials";
import { choose as chooseLook, look, LOOKS, type Look } from "./look";
import { helping, Help } from "./shortcuts";
import { Task } from "./task";
import { Tasks } from "./tasks";

const PLACES = [
  { id: "tasks", name: "Tasks" },
  { id: "agents", name: "Agents" },
  { id: "load", name: "Load" },
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
          {PLACES.map((one) => (
            <a key={one.id} href={`#/${one.id}`} aria-current={at === one.id ? "page" : undefined}>
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
        <button type="button" aria-label="Keyboard shortcuts" onClick={() => (helping.value = true)}>
          ?
        </button>
      </header>
      {unreachable.value && at !== "agents" && <Problem error={unreachable.value} />}
      <main id="main" tabIndex={-1}>
        {at === "agents" && <Agents />}
        {at === "load" && <Load />}
        {(at === "tasks" || at === "new") && <Work />}
      </main>
      <Credentials />
      <Help />
    </>
  );
}

/** The list beside the selected item. */
function Work() {
  const task = chosen.value;
  const aside = task !== null || place.value === "new";
  return (
    <div class={aside ? "split chosen" : "split"}>
      <Tasks />
      <div class="detail">
        {task ? <Task key={`${task.tenant}/${task.id}`} tenant={task.tenant} id={task.id} /> : agents.value && <New />}
      </div>
    </div>
  );
}
