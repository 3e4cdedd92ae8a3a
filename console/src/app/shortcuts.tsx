// Keyboard shortcuts. They can be turned off, because speech input and accidental key presses would trigger them (WCAG
// 2.1.4).

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { signInRequest } from "../shared/api";
import { navigate, route, section, selectedTask, updateQuery } from "../shared/route";
import { filterQuery } from "../tasks/filters";

const STORAGE_KEY = "dragoman.shortcuts";

export const helpIsOpen = signal(false);
const enabled = signal(localStorage.getItem(STORAGE_KEY) !== "off");

const TASK_TABS = ["conversation", "artifacts", "timeline", "execution", "pushes", "wire"];

const SHORTCUTS: readonly (readonly [string, string])[] = [
  ["/", "search for a task"],
  ["n", "new task, or message to the shown task"],
  ["j  k", "next and previous task of the list"],
  ["x", "select the focused or shown task of the list"],
  ["1 … 6", "tabs of the task"],
  ["o  t  f", "overview, tasks, failures"],
  ["a  u  w", "agents, usage, webhooks"],
  ["Esc", "leave the field, then back to the list"],
  ["Ctrl+Enter", "send"],
  ["?", "this help"],
];

function selectNeighbor(by: number): void {
  const links = [...document.querySelectorAll<HTMLAnchorElement>(".list a.row")];
  const index = links.findIndex((link) => link.closest("[aria-current]"));
  const to = links[Math.min(Math.max(index + by, 0), links.length - 1)];
  if (to) {
    to.focus();
    to.click();
  }
}

function toggleSelection(): void {
  const row = document.activeElement?.closest("tr") ?? document.querySelector(".list tr[aria-current]");
  row?.querySelector<HTMLInputElement>(".check input")?.click();
}

/** Focuses a field as soon as it exists; its view may not be rendered yet. */
function focusWhenVisible(selector: string, frames = 300): void {
  const field = document.querySelector<HTMLElement>(selector);
  if (field?.checkVisibility()) field.focus();
  else if (frames > 0) requestAnimationFrame(() => focusWhenVisible(selector, frames - 1));
}

function onKeyDown(event: KeyboardEvent): void {
  if (signInRequest.value) return;
  const target = event.target as HTMLElement;
  const typing = target.matches("input:not([type=checkbox]), textarea, select");
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    if (typing) target.blur();
    else if (selectedTask.value) navigate(["tasks"], filterQuery());
    else if (section.value === "new") navigate(["tasks"]);
    else if (section.value === "agents" && route.value.path.length > 1) navigate(["agents"]);
    return;
  }
  if (!enabled.value || typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const tab = TASK_TABS[Number(event.key) - 1];
  const actions: Record<string, () => void> = {
    "/": () => {
      if (section.value !== "tasks") navigate(["tasks"]);
      focusWhenVisible("#find");
    },
    n: () => {
      if (!selectedTask.value) navigate(["new"]);
      document.querySelector<HTMLElement>(".task .own-words")?.click();
      focusWhenVisible("#message, .input-form :is(input, select, textarea)");
    },
    j: () => selectNeighbor(1),
    k: () => selectNeighbor(-1),
    x: toggleSelection,
    o: () => navigate(["overview"]),
    t: () => navigate(["tasks"]),
    f: () => navigate(["failures"]),
    a: () => navigate(["agents"]),
    u: () => navigate(["usage"]),
    w: () => navigate(["webhooks"]),
    "?": () => (helpIsOpen.value = true),
  };
  const action = tab && selectedTask.value ? () => updateQuery({ tab, event: "" }) : actions[event.key];
  if (action) {
    event.preventDefault();
    action();
  }
}

export function listenForShortcuts(): void {
  addEventListener("keydown", onKeyDown);
}

export function ShortcutsDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (helpIsOpen.value) dialog.current?.showModal();
  }, [helpIsOpen.value]);
  const setEnabled = (value: boolean) => {
    enabled.value = value;
    localStorage.setItem(STORAGE_KEY, value ? "on" : "off");
  };
  return (
    <dialog ref={dialog} aria-labelledby="keys-title" onClose={() => (helpIsOpen.value = false)}>
      <h2 id="keys-title">Keyboard shortcuts</h2>
      <dl class="keys">
        {SHORTCUTS.map(([key, description]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{description}</dd>
          </div>
        ))}
      </dl>
      <label>
        <input type="checkbox" checked={enabled.value} onChange={(event) => setEnabled(event.currentTarget.checked)} /> Single-key shortcuts
      </label>
      <div class="buttons">
        <button type="button" onClick={() => dialog.current?.close()}>
          Close
        </button>
      </div>
    </dialog>
  );
}
