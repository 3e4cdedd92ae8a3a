// The frame of a page: heading, title of the browser's tab, empty states, and access errors.

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { ApiError } from "./api";
import { ErrorMessage } from "./components";
import { route, updateQuery } from "./route";
import { requestSignIn } from "./sign_in";

const PRODUCT = "Dragoman";

/** Sets the title of the browser's tab; undefined leaves it to another component. */
export function useTitle(title: string | undefined): void {
  useEffect(() => {
    if (title !== undefined) document.title = `${title} · ${PRODUCT}`;
  }, [title]);
}

/** Corrects a query parameter that is none of the known values, so that the address says what is shown. */
export function useKnownQuery(name: string, known: readonly string[]): void {
  const given = route.value.query.get(name) ?? "";
  useEffect(() => {
    if (given && !known.includes(given)) updateQuery({ [name]: known.find((value) => value === given.toLowerCase()) ?? "" });
  }, [given]);
}

interface PageProps {
  title: string;
  /** Links and controls beside the heading. */
  actions?: ComponentChildren;
  children?: ComponentChildren;
}

/** A page that scrolls as a whole. */
export function Page({ title, actions, children }: PageProps) {
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

/** The reason for an empty view, and the next thing to do. */
export function EmptyState({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty-state">
      <p>
        <b>{title}</b>
      </p>
      {children}
    </div>
  );
}

/** The error of a call. Without credentials or a grant: how to get them. `subject`: what the caller cannot see. */
export function AccessError({ error, subject }: { error: unknown; subject: string }) {
  if (!(error instanceof ApiError && [401, 403].includes(error.status))) return <ErrorMessage error={error} />;
  if (error.status === 403) {
    return (
      <EmptyState title={`Only operators and viewers can see ${subject}.`}>
        <p>Ask for a key with the grant viewer, or sign in with one.</p>
      </EmptyState>
    );
  }
  return (
    <EmptyState title={`Sign in to see ${subject}.`}>
      <button type="button" class="primary" onClick={() => requestSignIn()}>
        Sign in
      </button>
    </EmptyState>
  );
}

/** Whether a call failed for lack of credentials or of a grant. */
export function isAccessError(error: unknown): boolean {
  return error instanceof ApiError && [401, 403].includes(error.status);
}
