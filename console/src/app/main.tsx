import { render } from "preact";
import { pollAgents } from "../shared/agents";
import { finishSignIn, loadCaller, loadProviders } from "../shared/sign_in";
import { applyTheme } from "../shared/theme";
import { App } from "./app";
import { listenForShortcuts } from "./shortcuts";

applyTheme();
void finishSignIn().then(() => {
  void loadCaller();
  void loadProviders();
  pollAgents();
  listenForShortcuts();
  render(<App />, document.getElementById("console") as HTMLElement);
});
