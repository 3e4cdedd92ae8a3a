// Load and response times of the server, from its `/metrics`, while the page is open.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Chart } from "./chart";
import { most as largest, quantile, rate, read, sum, type Fits, type Numbers } from "./numbers";
import { Problem } from "./pieces";
import { lasting } from "./say";
import { ask, Failure } from "./server";

const EVERY = 2_000;
/** Number of stored readings, and the minimum width of the chart in readings. */
const KEPT = 150;
const ROOM = 30;

interface Look {
  at: number;
  numbers: Numbers;
}

const looks = signal<readonly Look[]>([]);
const problem = signal<unknown>(undefined);
let looking = false;

async function look(): Promise<void> {
  try {
    const text = await (await ask("metrics", { headers: { Accept: "text/plain" } })).text();
    looks.value = [...looks.value.slice(1 - KEPT), { at: Date.now(), numbers: read(text) }];
    problem.value = undefined;
  } catch (error) {
    problem.value = error;
  }
}

export function Load() {
  useEffect(() => {
    if (looking) return;
    looking = true; // continues in other views, so that the lines have no gaps
    void look();
    setInterval(() => {
      if (!document.hidden) void look();
    }, EVERY);
  }, []);
  const failed = problem.value;
  const refused = failed instanceof Failure && [401, 403].includes(failed.status);
  const absent = failed instanceof Failure && failed.status === 404;
  return (
    <section class="load" aria-label="Load" tabIndex={0}>
      {refused && <p class="empty">Only operators can see the server's metrics.</p>}
      {absent && <p class="empty">This server has its metrics on another port.</p>}
      {!refused && !absent && <Problem error={failed} />}
      {looks.value.length > 0 && <Charts looks={looks.value} />}
    </section>
  );
}

const LIVE = ["submitted", "working", "input-required", "auth-required"];
const BINDINGS = ["rest", "jsonrpc", "grpc", "websocket"];

/** Excludes streams, which last as long as they are read, and pages, which are not operations. */
const answered: Fits = ({ binding, method }) => binding !== "page" && !/stream|subscri/i.test(method ?? "");

function Charts({ looks }: { looks: readonly Look[] }) {
  const most = Math.max(ROOM, looks.length);
  const now = looks.map((one) => one.numbers);
  const pairs = looks.slice(1).map((after, index) => ({ before: looks[index] as Look, after }));
  const each = (value: (before: Numbers, after: Numbers, seconds: number) => number | undefined) =>
    pairs.map(({ before, after }) => value(before.numbers, after.numbers, (after.at - before.at) / 1000));
  const shown = { from: `${lasting((most - 1) * EVERY)} ago`, most };
  const spread = (name: string, fits?: Fits) => [
    { name: "p50", values: each((before, after) => quantile(before, after, 0.5, name, fits)) },
    { name: "p95", values: each((before, after) => quantile(before, after, 0.95, name, fits)) },
  ];
  return (
    <div class="charts">
      <Chart
        {...shown}
        title="Unfinished tasks"
        unit={whole}
        series={LIVE.map((state) => ({
          name: state.replace("-", " "),
          values: now.map((numbers) => sum(numbers, "dragoman_tasks", (labels) => labels["state"] === state)),
        }))}
      />
      <Chart
        {...shown}
        title="Requests"
        unit={perSecond}
        series={BINDINGS.map((binding) => ({
          name: binding,
          values: each((before, after, seconds) =>
            rate(before, after, seconds, "dragoman_requests_total", (labels) => labels["binding"] === binding),
          ),
        }))}
      />
      <Chart {...shown} title="Response time" unit={duration} series={spread("dragoman_request_duration_seconds", answered)} />
      <Chart {...shown} title="Turn duration" unit={duration} series={spread("dragoman_run_duration_seconds")} />
      <Chart
        {...shown}
        title="Turns"
        unit={perSecond}
        series={[
          { name: "started", values: each((before, after, seconds) => rate(before, after, seconds, "dragoman_runs_begun_total")) },
          { name: "ended", values: each((before, after, seconds) => rate(before, after, seconds, "dragoman_runs_ended_total")) },
        ]}
      />
      <Chart
        {...shown}
        title="Longest wait for a turn"
        unit={duration}
        series={[{ name: "wait", values: now.map((numbers) => largest(numbers, "dragoman_queue_age_seconds")) }]}
      />
    </div>
  );
}

const whole = (value: number) => (value < 10 ? String(Math.round(value * 10) / 10) : String(Math.round(value)));
const perSecond = (value: number) => `${whole(value)}/s`;

function duration(seconds: number): string {
  if (seconds === 0) return "0 s";
  if (seconds < 0.01) return `${(seconds * 1000).toFixed(1)} ms`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  return seconds < 60 ? `${seconds.toFixed(1)} s` : lasting(seconds * 1000);
}
