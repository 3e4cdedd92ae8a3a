// Keyboard shortcuts. They can be turned off, because speech input and accidental key presses would trigger them (WCAG
// 2.1.4).

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { chosen, go, place, refine } from "../shared/route";
import { kept } from "../tasks/filters";

const KEY = "dragoman.shortcuts";

export const helping = signal(false);
const on = signal(localStorage.getItem(KEY) !== "off");

const TABS = ["conversation", "artifacts", "timeline", "execution", "pushes", "wire"];

const KEYS: readonly (readonly [string, string])[] = [
  ["/", "search for a task"],
  ["n", "new task, or message to the shown task"],
  ["j  k", "next and previous task of the list"],
  ["1 … 6", "tabs of the task"],
  ["o  t  a", "overview, tasks, agents"],
  ["u  w", "usage, webhooks"],
  ["Esc", "back to the list"],
  ["Ctrl+Enter", "send"],
  ["?", "this help"],
];

function step(by: number): void {
  const links = [...document.querySelectorAll<HTMLAnchorElement>(".list a.row")];
  const here = links.findIndex((link) => link.closest("[aria-current]"));
  const to = links[Math.min(Math.max(here + by, 0), links.length - 1)];
  if (to) {
    to.focus();
    to.click();
  }
}

/** Focuses a field as soon as it exists; its view may not be rendered yet. */
function focus(id: string, frames = 300): void {
  const field = document.getElementById(id);
  if (field?.checkVisibility()) field.focus();
  else if (frames > 0) requestAnimationFrame(() => focus(id, frames - 1));
}

function press(event: KeyboardEvent): void {
  const target = event.target as HTMLElement;
  const typing = target.matches("input, textarea, select");
  if (event.key === "Escape" && chosen.value && !document.querySelector("dialog[open]")) {
    if (typing) target.blur();
    else go(["tasks"], kept());
    return;
  }
  if (!on.value || typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const tab = TABS[Number(event.key) - 1];
  const actions: Record<string, () => void> = {
    "/": () => {
      if (place.value !== "tasks" && place.value !== "new") go(["tasks"]);
      focus("find");
    },
    n: () => {
      if (!chosen.value) go(["new"]);
      focus("message");
    },
    j: () => step(1),
    k: () => step(-1),
    o: () => go(["overview"]),
    t: () => go(["tasks"]),
    a: () => go(["agents"]),
    u: () => go(["usage"]),
    w: () => go(["webhooks"]),
    "?": () => (helping.value = true),
  };
  const action = tab && chosen.value ? () => refine({ tab, event: "" }) : actions[event.key];
  if (action) {
    event.preventDefault();
    action();
  }
}

export function listen(): void {
  addEventListener("keydown", press);
}

export function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (helping.value) dialog.current?.showModal();
  }, [helping.value]);
  const turn = (wanted: boolean) => {
    on.value = wanted;
    localStorage.setItem(KEY, wanted ? "on" : "off");
  };
  return (
    <dialog ref={dialog} aria-labelledby="keys-title" onClose={() => (helping.value = false)}>
      <h2 id="keys-title">Keyboard shortcuts</h2>
      <dl class="keys">
        {KEYS.map(([key, what]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <label>
        <input type="checkbox" checked={on.value} onChange={(event) => turn(event.currentTarget.checked)} /> Single-key shortcuts
      </label>
      <div class="buttons">
        <button type="button" onClick={() => dialog.current?.close()}>
          Close
        </button>
      </div>
    </dialog>
  );
}
