// The divider between two panes, moved by pointer or arrow keys (ARIA practices: window splitter).

import { signal } from "@preact/signals";

const STORAGE_KEY = "dragoman.list-width";
const STEP_PX = 24;

/** Above the maximum, the list would need its table, whose columns leave no room for the tasks' texts. */
const MIN_PX = 320;
const MAX_PX = 720;

const stored = Number(localStorage.getItem(STORAGE_KEY)) || undefined;

/** The width of the list that the user chose; undefined for that of the style sheet. */
const chosenWidth = signal(stored);

/** The style of the panes' container. */
export function paneStyle(): Record<string, string> {
  return chosenWidth.value ? { "--list-width": `${chosenWidth.value}px` } : {};
}

function setWidth(width: number | undefined): void {
  chosenWidth.value = width && Math.round(Math.min(Math.max(width, MIN_PX), MAX_PX));
  if (chosenWidth.value) localStorage.setItem(STORAGE_KEY, String(chosenWidth.value));
  else localStorage.removeItem(STORAGE_KEY);
}

export function Splitter() {
  const widthOf = (splitter: HTMLElement) => splitter.previousElementSibling?.getBoundingClientRect().width ?? MIN_PX;
  const onKeyDown = (event: KeyboardEvent) => {
    const width = widthOf(event.currentTarget as HTMLElement);
    const widths: Record<string, number> = { ArrowLeft: width - STEP_PX, ArrowRight: width + STEP_PX, Home: MIN_PX, End: MAX_PX };
    const next = widths[event.key];
    if (next === undefined) return;
    event.preventDefault();
    setWidth(next);
  };
  const onPointerDown = (event: PointerEvent) => {
    const splitter = event.currentTarget as HTMLElement;
    splitter.setPointerCapture(event.pointerId);
    const offset = event.clientX - widthOf(splitter);
    splitter.onpointermove = (move) => setWidth(move.clientX - offset);
    splitter.onlostpointercapture = () => (splitter.onpointermove = null);
  };
  return (
    <div
      class="splitter"
      role="separator"
      aria-orientation="vertical"
      aria-label="Width of the list"
      aria-valuemin={MIN_PX}
      aria-valuemax={MAX_PX}
      aria-valuenow={chosenWidth.value ?? MIN_PX}
      tabIndex={0}
      title="Drag to resize; double-click for the usual width"
      onKeyDown={onKeyDown}
      onPointerDown={onPointerDown}
      onDblClick={() => setWidth(undefined)}
    />
  );
}
