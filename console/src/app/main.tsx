import { render } from "preact";
import { pollAgents } from "../shared/agents";
import { finishSignIn, loadCaller, loadProviders } from "../shared/sign_in";
import { applyTheme } from "../shared/theme";
import { App } from "./app";
import { listenForShortcuts } from "./shortcuts";

applyTheme();
void finishSignIn().then(async () => {
  await Promise.all([loadCaller(), loadProviders()]); // before the views, which would be rejected without credentials
  pollAgents();
  listenForShortcuts();
  render(<App />, document.getElementById("console") as HTMLElement);
});
