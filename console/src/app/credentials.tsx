// The dialog for credentials, and the button that opens it.

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { asksForKey, key, stopAsking, words } from "../shared/api";
import { caller, providers, signIn, signOut, use } from "../shared/sign_in";

/** Shows who the user is. */
export function CredentialsButton() {
  const who = caller.value;
  return (
    <button
      type="button"
      class="key"
      onClick={() => (asksForKey.value = who ? " " : "Sign in, so that the server knows which tasks are yours.")}
    >
      {who ? who.principal : key.value ? "Signed in" : "Sign in"}
    </button>
  );
}

export function Credentials() {
  const dialog = useRef<HTMLDialogElement>(null);
  const why = asksForKey.value;
  useEffect(() => {
    if (why && !dialog.current?.open) dialog.current?.showModal();
    if (!why) dialog.current?.close();
  }, [why]);
  return (
    <dialog ref={dialog} class="credentials" aria-labelledby="key-title" onClose={stopAsking}>
      <h2 id="key-title">{caller.value ? "Your account" : "Sign in"}</h2>
      {why.trim() && <p role="alert">{why}</p>}
      {caller.value && <Account />}
      <Providers />
      <KeyForm />
      <div class="buttons">
        {key.value && (
          <button type="button" onClick={signOut}>
            Sign out
          </button>
        )}
        <button type="button" onClick={() => dialog.current?.close()}>
          Close
        </button>
      </div>
    </dialog>
  );
}

function Account() {
  const who = caller.value;
  if (!who) return null;
  return (
    <dl class="facts">
      <div>
        <dt>Signed in as</dt>
        <dd>{who.principal}</dd>
      </div>
      <div>
        <dt>Grants</dt>
        <dd>{who.grants.length ? who.grants.join(", ") : "none: your own tasks, with every agent"}</dd>
      </div>
    </dl>
  );
}

function Providers() {
  const failed = useSignal("");
  const found = providers.value ?? [];
  if (!found.length) return null;
  return (
    <div class="providers">
      {found.map((one) => (
        <button
          key={one.issuer}
          type="button"
          class="primary"
          onClick={() => signIn(one).catch((error) => (failed.value = words(error)))}
        >
          Sign in with {one.name}
        </button>
      ))}
      {failed.value && <p role="alert">{failed.value}</p>}
    </div>
  );
}

/** Takes an API key or token, if the server accepts it. */
function KeyForm() {
  const typed = useSignal("");
  const failed = useSignal("");
  const enter = async (event: SubmitEvent) => {
    event.preventDefault();
    failed.value = "";
    try {
      await use(typed.value);
      typed.value = "";
    } catch (error) {
      failed.value = words(error);
    }
  };
  return (
    <form onSubmit={enter}>
      <label>
        API key or token
        <input
          type="password"
          autocomplete="off"
          spellcheck={false}
          required
          aria-describedby="key-kept"
          value={typed.value}
          onInput={(event) => (typed.value = event.currentTarget.value)}
        />
      </label>
      {failed.value && <p role="alert">{failed.value}</p>}
      <p class="faint" id="key-kept">
        Stored until this tab is closed.
      </p>
      <button type="submit">Use this key</button>
    </form>
  );
}
