// A button that opens a menu, as in the ARIA practices: arrow keys move, Escape closes and returns to the button.

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface MenuProps {
  /** The content of the button. */
  button: ComponentChildren;
  /** The accessible name of button and menu. */
  label: string;
  class?: string;
  /** `MenuItem`s, and anything between them. */
  children: ComponentChildren;
}

export function Menu({ button, label, class: className, children }: MenuProps) {
  const open = useSignal(false);
  const root = useRef<HTMLDivElement>(null);
  const items = () => [...(root.current?.querySelectorAll<HTMLElement>("[role^=menuitem]") ?? [])];
  const close = () => {
    open.value = false;
    root.current?.querySelector("button")?.focus();
  };
  useEffect(() => {
    if (!open.value) return undefined;
    items()[0]?.focus();
    const onPointerDown = (event: Event) => {
      if (!root.current?.contains(event.target as Node)) open.value = false;
    };
    addEventListener("pointerdown", onPointerDown);
    return () => removeEventListener("pointerdown", onPointerDown);
  }, [open.value]);
  const onKeyDown = (event: KeyboardEvent) => {
    if (!open.value) return;
    const all = items();
    const index = all.indexOf(document.activeElement as HTMLElement);
    const targets: Record<string, number> = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: all.length - 1 };
    const target = targets[event.key];
    event.stopPropagation(); // no shortcut acts behind an open menu
    if (event.key === "Escape") close();
    else if (event.key === "Tab") open.value = false;
    else if (target !== undefined) {
      event.preventDefault();
      all.at(target % all.length)?.focus();
    }
  };
  return (
    <div class={`menu ${className ?? ""}`} ref={root} onKeyDown={onKeyDown}>
      <button type="button" aria-haspopup="menu" aria-expanded={open.value} aria-label={label} title={label} onClick={() => (open.value = !open.value)}>
        {button}
      </button>
      {open.value && (
        <div role="menu" aria-label={label} onClick={(event) => (event.target as HTMLElement).closest("[role^=menuitem]") && close()}>
          {children}
        </div>
      )}
    </div>
  );
}

interface MenuItemProps {
  onSelect: () => void;
  danger?: boolean;
  /** For one of several choices: whether it is the current one. */
  checked?: boolean;
  children: ComponentChildren;
}

export function MenuItem({ onSelect, danger = false, checked, children }: MenuItemProps) {
  return (
    <button
      type="button"
      role={checked === undefined ? "menuitem" : "menuitemradio"}
      aria-checked={checked}
      tabIndex={-1}
      class={danger ? "danger" : undefined}
      onClick={onSelect}
    >
      {children}
    </button>
  );
}
