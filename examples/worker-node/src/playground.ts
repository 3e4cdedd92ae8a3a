// The playground: executes the command in the first word of a message, like the server's built-in playground.

import { data, file, part, type Turn } from "./turn.js";
import { type Agent } from "./worker.js";

export const playground = (id: string): Agent => ({
  registration: {
    id,
    direct: true,
    card: {
      name: "Playground in TypeScript",
      description: "Runs the command in the first word of a message; for trying out clients",
      version: "1.0.0",
      defaultInputModes: ["text/plain", "application/json", "application/octet-stream", "text/csv"],
      defaultOutputModes: ["text/plain", "application/json"],
      skills: [
        {
          id: "echo",
          name: "Echo",
          description: "Returns TEXT as an artifact; messages without a command are echoed, too",
          tags: ["artifact"],
          examples: ["echo hello", "hello"],
        },
        {
          id: "stream",
          name: "Stream",
          description: "stream N [MS]: N chunks of one artifact, MS milliseconds apart",
          tags: ["streaming"],
          examples: ["stream 5 200"],
        },
        {
          id: "sleep",
          name: "Sleep",
          description: "sleep S: works for S seconds, without a result; can be canceled",
          tags: ["cancel"],
          examples: ["sleep 10"],
        },
        {
          id: "steps",
          name: "Durable steps",
          description: "steps N: N random numbers, each drawn once, and a pause of a second",
          tags: ["steps"],
          examples: ["steps 3"],
        },
        {
          id: "ends",
          name: "Ways to end",
          description: "ask and auth wait for a follow-up; fail, reject and reply TEXT end the turn that way",
          tags: ["states"],
          examples: ["ask", "auth", "fail", "reject", "reply hello"],
        },
        {
          id: "parts",
          name: "Kinds of parts",
          description: "file returns a small text file, data an object",
          tags: ["parts"],
          examples: ["file", "data"],
        },
      ],
    },
  },
  run,
});

async function run(turn: Turn): Promise<void> {
  if (turn.question) return turn.result([part(`you said: ${turn.text}`)]);
  const [, command = "", rest = ""] = /^([^ ]*)(?: ([\s\S]*))?$/.exec(turn.text) ?? [];
  switch (command) {
    case "echo":
      if (rest) return turn.result([part(rest)]);
      break;
    case "stream":
      return stream(turn, rest);
    case "sleep":
      return sleep(turn, rest);
    case "steps":
      return steps(turn, rest);
    case "ask":
      return turn.ask("what would you like to say?");
    case "auth":
      return turn.needAuth("authenticate, then send anything");
    case "fail":
      throw new Error("failing, as asked");
    case "reject":
      return turn.reject("rejecting, as asked");
    case "reply":
      if (rest) return turn.reply(rest);
      break;
    case "file":
      return turn.result([file("hello from the playground\n", "hello.txt", "text/plain")], "hello.txt");
    case "data":
      return turn.result([data({ hello: "world", numbers: [1, 2, 3], nested: { true: true, nothing: null } })]);
  }
  turn.result(turn.text ? [part(turn.text)] : (turn.message?.parts ?? []));
}

async function stream(turn: Turn, rest: string): Promise<void> {
  const words = rest.split(/\s+/).filter(Boolean);
  const [count = 0, pause = 0] = words.map(Number);
  const whole = (value: number, least: number, most: number) =>
    Number.isInteger(value) && value >= least && value <= most;
  if (![1, 2].includes(words.length) || !whole(count, 1, 100_000) || !whole(pause, 0, 60_000))
    turn.reject("stream N [MS]: N is a whole number from 1 to 100000, MS one from 0 to 60000");
  for (let number = 1; number <= count; number++) {
    if (number > 1 && pause) await turn.sleep(pause);
    await turn.chunk(`chunk-${number} `);
  }
}

async function steps(turn: Turn, rest: string): Promise<void> {
  const drawn: number[] = [];
  for (let number = 0; number < Number(rest); number++) drawn.push(await turn.step("draw", async () => Math.random()));
  await turn.status(`drawn: ${drawn.join(" ")}`);
  turn.pause(1000);
  turn.result([part(drawn.join(" "))]);
}

async function sleep(turn: Turn, rest: string): Promise<void> {
  const seconds = rest.trim() ? Number(rest) : NaN;
  if (!(seconds >= 0 && seconds <= 3600)) turn.reject("sleep S: S is a number of seconds from 0 to 3600");
  await turn.status(`sleeping for ${seconds} s`);
  await turn.sleep(seconds * 1000);
}
