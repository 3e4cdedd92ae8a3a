// The account: a menu with colors and help, and a page with the grants of the signed-in user.

import { accessToken } from "../shared/api";
import { FactList } from "../shared/components";
import { Menu, MenuItem } from "../shared/menu";
import { Page } from "../shared/page";
import { navigate } from "../shared/route";
import { authenticates, caller, requestSignIn, signOut } from "../shared/sign_in";
import { setTheme, theme, THEMES } from "../shared/theme";
import { helpIsOpen } from "./shortcuts";

const GRANT_TEXTS: Record<string, string> = {
  operator: "operator: sees and changes the tasks of all principals",
  viewer: "viewer: sees the tasks of all principals",
  auditor: "auditor: reads the audit log",
  worker: "worker: connects workers, which run agents",
};

export function AccountMenu() {
  const name = caller.value?.principal ?? (accessToken.value ? "Signed in" : "");
  return (
    <>
      {authenticates.value && !accessToken.value && (
        <button type="button" class="sign-in-link" onClick={() => requestSignIn()}>
          Sign in
        </button>
      )}
      <Menu
        class="account"
        label={name ? `Account of ${name}` : "Settings"}
        button={
          name || (
            <svg viewBox="0 0 20 20" aria-hidden="true">
              <path d="M3 6h7M14 6h3M3 14h3M10 14h7M12 4a2 2 0 1 0 0 4 2 2 0 0 0 0-4zM8 12a2 2 0 1 0 0 4 2 2 0 0 0 0-4z" />
            </svg>
          )
        }
      >
        {accessToken.value && <MenuItem onSelect={() => navigate(["account"])}>Your account</MenuItem>}
        <div role="group" aria-label="Colors">
          {THEMES.map((option) => (
            <MenuItem key={option.id} checked={theme.value === option.id} onSelect={() => setTheme(option.id)}>
              {option.name}
            </MenuItem>
          ))}
        </div>
        <MenuItem onSelect={() => (helpIsOpen.value = true)}>Keyboard shortcuts</MenuItem>
        {accessToken.value && <MenuItem onSelect={signOut}>Sign out</MenuItem>}
      </Menu>
    </>
  );
}

export function AccountPage() {
  const account = caller.value;
  return (
    <Page title="Your account">
      {account && accessToken.value ? (
        <>
          <FactList
            items={[
              ["Signed in as", <b>{account.principal}</b>],
              ["Grants", account.grants.length > 0 ? <ul>{account.grants.map((grant) => <li key={grant}>{GRANT_TEXTS[grant] ?? grant}</li>)}</ul> : "none: your own tasks, with every agent"],
            ]}
          />
          <p class="faint">The key is kept in this tab until it is closed or you sign out.</p>
          <div class="buttons">
            <button type="button" onClick={signOut}>
              Sign out
            </button>
          </div>
        </>
      ) : (
        <p>{authenticates.value ? "You are not signed in." : "This server has authentication off: it does not ask who you are."}</p>
      )}
    </Page>
  );
}
