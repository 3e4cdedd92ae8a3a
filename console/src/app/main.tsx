import { render } from "preact";
import { App } from "./app";
import { pollAgents } from "../shared/agents";
import { applyTheme } from "../shared/theme";
import { listenForShortcuts } from "./shortcuts";
import { finishSignIn, loadCaller, loadProviders } from "../shared/sign_in";

applyTheme();
void finishSignIn().then(() => {
  void loadCaller();
  void loadProviders();
  pollAgents();
  listenForShortcuts();
  render(<App />, document.getElementById("console") as HTMLElement);
});
