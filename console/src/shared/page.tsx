// The frame of a page: heading, title of the browser's tab, numbers, and what callers without a grant see.

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { Problem } from "./components";
import { asksForKey, Failure } from "./api";

const PRODUCT = "Dragoman";

/** Sets the title of the browser's tab; undefined leaves it to another component. */
export function useTitle(title: string | undefined): void {
  useEffect(() => {
    if (title !== undefined) document.title = `${title} · ${PRODUCT}`;
  }, [title]);
}

interface Shown {
  title: string;
  /** Links and controls beside the heading. */
  actions?: ComponentChildren;
  children?: ComponentChildren;
}

/** A page that scrolls as a whole. */
export function Page({ title, actions, children }: Shown) {
  useTitle(title);
  return (
    <div class="page" tabIndex={0} role="region" aria-label={title}>
      <div class="sheet">
        <div class="page-head">
          <h2>{title}</h2>
          {actions}
        </div>
        {children}
      </div>
    </div>
  );
}

/** Why there is nothing to see, and what to do next. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="nothing">
      <p>
        <b>{title}</b>
      </p>
      {children}
    </div>
  );
}

/** A failed call. For lack of credentials or of a grant: what helps. `what`: what the caller cannot see. */
export function Refusal({ error, what }: { error: unknown; what: string }) {
  if (!(error instanceof Failure && [401, 403].includes(error.status))) return <Problem error={error} />;
  if (error.status === 403) {
    return (
      <Empty title={`Only operators and viewers can see ${what}.`}>
        <p>Ask for a key with the grant viewer, or sign in with one.</p>
      </Empty>
    );
  }
  return (
    <Empty title={`Sign in to see ${what}.`}>
      <button type="button" class="primary" onClick={() => (asksForKey.value = `Sign in to see ${what}.`)}>
        Sign in
      </button>
    </Empty>
  );
}

/** Whether a call failed for lack of credentials or of a grant. */
export function isRefusal(error: unknown): boolean {
  return error instanceof Failure && [401, 403].includes(error.status);
}
