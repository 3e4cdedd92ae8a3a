// The tasks that an operator selects in the list, and the bar that acts on them.

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { accessToken } from "../shared/api";
import { formatCount, formatNumber } from "../shared/format";
import { caller } from "../shared/sign_in";
import { BulkActions } from "./bulk_actions";
import { isFiltered, type Filters } from "./filters";
import { rowKey, type LoadedTasks, type TaskRow } from "./listing";

export interface Selection {
  rows: readonly TaskRow[];
  /** All tasks that the filters select, also those that are not loaded. */
  isAll: boolean;
  has: (row: TaskRow) => boolean;
  toggle: (row: TaskRow) => void;
  selectShown: () => void;
  selectAll: () => void;
  clear: () => void;
}

const NO_KEYS: ReadonlySet<string> = new Set();

/** Only operators act on several tasks; without authentication, everybody does who sees those of all principals. */
export function canSelect(loaded: LoadedTasks | undefined): boolean {
  return (loaded?.allPrincipals ?? false) && (!accessToken.value || (caller.value?.grants.includes("operator") ?? false));
}

/** The selection among these rows; other filters clear it. */
export function useSelection(filters: Filters, rows: readonly TaskRow[]): Selection {
  const keys = useSignal(NO_KEYS);
  const all = useSignal(false);
  const select = (selected: ReadonlySet<string>, isAll = false) => {
    keys.value = selected;
    all.value = isAll;
  };
  useEffect(() => select(NO_KEYS), [JSON.stringify(filters)]);
  const has = (row: TaskRow) => all.value || keys.value.has(rowKey(row));
  const selected = rows.filter(has);
  return {
    rows: selected,
    isAll: all.value,
    has,
    toggle: (row) => {
      const next = new Set(selected.map(rowKey));
      if (!next.delete(rowKey(row))) next.add(rowKey(row));
      select(next);
    },
    selectShown: () => select(new Set(rows.map(rowKey))),
    selectAll: () => select(NO_KEYS, true),
    clear: () => select(NO_KEYS),
  };
}

interface SelectionBarProps {
  selection: Selection;
  rows: readonly TaskRow[];
  filters: Filters;
  loaded: LoadedTasks;
  /** What is offered while nothing is selected. */
  children: ComponentChildren;
}

/** Selects all tasks of a filter, and acts on what is selected. Without a filter it appears with the first selected row. */
export function SelectionBar({ selection, rows, filters, loaded, children }: SelectionBarProps) {
  const filtered = isFiltered(filters);
  const selected = selection.rows.length;
  if (selected === 0 && (!filtered || rows.length === 0)) return null;
  const complete = selection.isAll || (!filtered && selected === rows.length);
  const toggleAll = () => (selected ? selection.clear() : filtered ? selection.selectAll() : selection.selectShown());
  const text = selection.isAll
    ? `All ${formatCount(loaded.total)} selected`
    : selected
      ? `${formatNumber(selected)} selected`
      : `Select all ${formatCount(loaded.total)}`;
  return (
    <div class="selection" role="group" aria-label="Selected tasks">
      <label>
        <input type="checkbox" checked={complete} indeterminate={selected > 0 && !complete} onChange={toggleAll} /> {text}
      </label>
      {selected > 0 && <BulkActions selected={selection.isAll ? undefined : selection.rows} filters={filters} loaded={loaded} />}
      {selected > 0 && !complete && (
        <button type="button" class="plain" onClick={filtered ? selection.selectAll : selection.selectShown}>
          {filtered ? `Select all ${formatCount(loaded.total)}` : `Select all ${formatNumber(rows.length)} shown`}
        </button>
      )}
      {selected === 0 && children}
    </div>
  );
}
