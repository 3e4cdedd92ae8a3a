// The frame around the views: navigation, credentials and shortcuts.

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Agents } from "./agents";
import { agents, unreachable } from "./catalogue";
import { New } from "./compose";
import { Load } from "./load";
import { Problem } from "./pieces";
import { chosen, place } from "./route";
import { asksForKey, key, remember } from "./server";
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
        <button type="button" class="key" onClick={() => (asksForKey.value = "API key or token for all calls.")}>
          {key.value ? "Key set" : "Key"}
        </button>
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
      <Key />
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

function Key() {
  const dialog = useRef<HTMLDialogElement>(null);
  const typed = useSignal("");
  const why = asksForKey.value;
  useEffect(() => {
    if (why && !dialog.current?.open) dialog.current?.showModal();
    if (!why) dialog.current?.close();
  }, [why]);
  const enter = (event: SubmitEvent) => {
    event.preventDefault();
    remember(typed.value);
    typed.value = "";
  };
  return (
    <dialog ref={dialog} aria-labelledby="key-title" onClose={() => (asksForKey.value = "")}>
      <form onSubmit={enter}>
        <h2 id="key-title">Credentials</h2>
        <p>{why}</p>
        <label>
          API key or token
          <input
            type="password"
            autocomplete="off"
            spellcheck={false}
            value={typed.value}
            onInput={(event) => (typed.value = event.currentTarget.value)}
          />
        </label>
        <p class="faint">Stored until this tab is closed.</p>
        <div class="buttons">
          <button type="submit" class="primary">
            Use
          </button>
          {key.value && (
            <button type="button" onClick={() => remember("")}>
              Remove the current one
            </button>
          )}
          <button type="button" onClick={() => dialog.current?.close()}>
            Close
          </button>
        </div>
      </form>
    </dialog>
  );
}
