import { render } from "preact";
import { App } from "./app";
import { keepUp } from "./catalogue";
import { wear } from "./look";
import { listen } from "./shortcuts";
import { finishSignIn, learnCaller, learnProviders } from "./sign_in";

wear();
void finishSignIn().then(() => {
  void learnCaller();
  void learnProviders();
  keepUp();
  listen();
  render(<App />, document.getElementById("console") as HTMLElement);
});
