import { render } from "preact";
import { App } from "./app";
import { keepUp } from "../shared/agents";
import { wear } from "../shared/theme";
import { listen } from "./shortcuts";
import { finishSignIn, learnCaller, learnProviders } from "../shared/sign_in";

wear();
void finishSignIn().then(() => {
  void learnCaller();
  void learnProviders();
  keepUp();
  listen();
  render(<App />, document.getElementById("console") as HTMLElement);
});
