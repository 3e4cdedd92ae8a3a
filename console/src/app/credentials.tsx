// The dialog for credentials, and the button that opens it.

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { accessToken, dismissSignIn, errorText, signInReason } from "../shared/api";
import { caller, providers, signIn, signInWithToken, signOut } from "../shared/sign_in";

/** Shows the authenticated user; opens the sign-in dialog. */
export function CredentialsButton() {
  const account = caller.value;
  return (
    <button
      type="button"
      class="key"
      onClick={() => (signInReason.value = account ? " " : "Sign in, so that the server knows which tasks are yours.")}
    >
      {account ? account.principal : accessToken.value ? "Signed in" : "Sign in"}
    </button>
  );
}

export function CredentialsDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const reason = signInReason.value;
  useEffect(() => {
    if (reason && !dialog.current?.open) dialog.current?.showModal();
    if (!reason) dialog.current?.close();
  }, [reason]);
  return (
    <dialog ref={dialog} class="credentials" aria-labelledby="key-title" onClose={dismissSignIn}>
      <h2 id="key-title">{caller.value ? "Your account" : "Sign in"}</h2>
      {reason.trim() && <p role="alert">{reason}</p>}
      {caller.value && <Account />}
      <Providers />
      <KeyForm />
      <div class="buttons">
        {accessToken.value && (
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
  const account = caller.value;
  if (!account) return null;
  return (
    <dl class="facts">
      <div>
        <dt>Signed in as</dt>
        <dd>{account.principal}</dd>
      </div>
      <div>
        <dt>Grants</dt>
        <dd>{account.grants.length ? account.grants.join(", ") : "none: your own tasks, with every agent"}</dd>
      </div>
    </dl>
  );
}

function Providers() {
  const failed = useSignal("");
  const known = providers.value ?? [];
  if (!known.length) return null;
  return (
    <div class="providers">
      {known.map((provider) => (
        <button
          key={provider.issuer}
          type="button"
          class="primary"
          onClick={() => signIn(provider).catch((error) => (failed.value = errorText(error)))}
        >
          Sign in with {provider.name}
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
      await signInWithToken(typed.value);
      typed.value = "";
    } catch (error) {
      failed.value = errorText(error);
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
