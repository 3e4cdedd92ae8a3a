import { render } from "preact";
import { App } from "./app";
import { keepUp } from "./catalogue";
import { wear } from "./look";
import { listen } from "./shortcuts";

wear();
keepUp();
listen();
render(<App />, document.getElementById("console") as HTMLElement);
