// The page that asks for credentials, in place of all others: nothing is read from the server behind it.

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { agents } from "../shared/agents";
import { ApiError, errorText, signInRequest } from "../shared/api";
import { useTitle } from "../shared/page";
import { navigate } from "../shared/route";
import { providers, signIn, signInWithToken } from "../shared/sign_in";
import { Mark } from "./mark";

export function SignInPage() {
  useTitle("Sign in");
  const reason = signInRequest.value?.reason;
  const known = providers.value ?? [];
  const withoutSignIn = () => {
    signInRequest.value = undefined;
    navigate(["agents"]);
  };
  return (
    <main id="main" class="sign-in" tabIndex={-1}>
      <section class="box" aria-labelledby="sign-in-title">
        <Mark />
        <h1 id="sign-in-title">Sign in to Dragoman</h1>
        {reason && <p role="alert">{reason}</p>}
        {known.length > 0 && <Providers />}
        {known.length > 0 && <p class="or">or</p>}
        <KeyForm isPrimary={known.length === 0} />
        {agents.value && agents.value.length > 0 && (
          <button type="button" class="plain" onClick={withoutSignIn}>
            See the agents without signing in
          </button>
        )}
      </section>
    </main>
  );
}

function Providers() {
  const failed = useSignal("");
  return (
    <div class="providers">
      {providers.value?.map((provider) => (
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
function KeyForm({ isPrimary }: { isPrimary: boolean }) {
  const field = useRef<HTMLInputElement>(null);
  const typed = useSignal("");
  const failed = useSignal("");
  const checking = useSignal(false);
  useEffect(() => {
    if (isPrimary && !matchMedia("(pointer: coarse)").matches) field.current?.focus();
  }, []);
  const enter = async (event: SubmitEvent) => {
    event.preventDefault();
    failed.value = "";
    checking.value = true;
    try {
      await signInWithToken(typed.value);
    } catch (error) {
      failed.value = error instanceof ApiError && error.status === 401 ? "This key is not valid." : errorText(error);
      field.current?.select();
    }
    checking.value = false;
  };
  return (
    <form onSubmit={(event) => void enter(event)}>
      <label for="key">API key or token</label>
      <input
        id="key"
        ref={field}
        type="password"
        autocomplete="off"
        spellcheck={false}
        required
        aria-describedby="key-note"
        aria-invalid={failed.value !== ""}
        value={typed.value}
        onInput={(event) => (typed.value = event.currentTarget.value)}
      />
      <p id="key-note" class={failed.value ? "bad" : "faint"} role={failed.value ? "alert" : undefined}>
        {failed.value || "Kept in this tab until it is closed."}
      </p>
      <button type="submit" class={isPrimary ? "primary" : undefined} disabled={checking.value}>
        Sign in
      </button>
    </form>
  );
}
