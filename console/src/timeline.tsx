// The live timeline of a task, and its artifacts.

import { useLayoutEffect, useRef } from "preact/hooks";
import type { Fold, Line } from "./fold";
import { Parts } from "./parts";
import { State } from "./pieces";
import { refine } from "./route";
import { clock, full, plural, short } from "./say";
import { isTerminal } from "./wire";

export function Timeline({ fold }: { fold: Fold }) {
  const end = useRef<HTMLDivElement>(null);
  const stays = useRef(true);
  // Scrolls with new lines only if the end is visible.
  useLayoutEffect(() => {
    const panel = end.current?.closest(".panel");
    if (!panel) return;
    const scrolled = () => {
      stays.current = panel.scrollHeight - panel.scrollTop - panel.clientHeight < 48;
    };
    panel.addEventListener("scroll", scrolled);
    return () => panel.removeEventListener("scroll", scrolled);
  }, []);
  useLayoutEffect(() => {
    const panel = end.current?.closest(".panel");
    if (panel && stays.current) panel.scrollTop = panel.scrollHeight;
  });
  return (
    <>
      <div role="log" aria-label="Timeline">
        <ol class="timeline">
          {fold.lines.map((line, index) => (
            <Entry key={index} line={line} live={index === fold.lines.length - 1 && !isTerminal(fold.state)} />
          ))}
        </ol>
      </div>
      <div ref={end} />
    </>
  );
}

function Entry({ line, live }: { line: Line; live: boolean }) {
  return (
    <li data-kind={line.kind}>
      <span class="sequence">
        {line.kind !== "user" && line.first > 0 && (
          <button
            type="button"
            class="plain"
            title="Show this event on the wire"
            aria-label={`Event ${line.first} on the wire`}
            onClick={() => refine({ tab: "wire", event: String(line.first) })}
          >
            {line.first === line.last ? line.first : `${line.first}–${line.last}`}
          </button>
        )}
      </span>
      <time class="at" title={full(line.time)}>
        {clock(line.time)}
      </time>
      <div class="what">
        <What line={line} live={live} />
      </div>
    </li>
  );
}

function What({ line, live }: { line: Line; live: boolean }) {
  switch (line.kind) {
    case "user":
      return (
        <>
          <p class="who">user</p>
          <Parts parts={line.message?.parts ?? []} />
        </>
      );
    case "artifact":
      return (
        <>
          <p class="who">
            {line.replaces ? "artifact, replaced" : "artifact"} {line.artifact?.name ? <b>{line.artifact.name}</b> : <code>{short(line.artifact?.artifactId ?? "")}</code>}
            {line.last > line.first && <span class="faint"> {plural(line.last - line.first + 1, "chunk")}</span>}
            {line.complete && <span class="faint"> complete</span>}
          </p>
          <Parts parts={line.artifact?.parts ?? []} usual="markdown" live={live} />
        </>
      );
    case "gap":
      return <p class="faint">Earlier events were removed. This is the task as of event {line.first}.</p>;
    default:
      return (
        <>
          <p class="who">
            <State state={line.state ?? ""} />
            {line.attempt && <span> attempt {line.attempt}</span>}
          </p>
          {line.message && <Parts parts={line.message.parts} usual="markdown" />}
        </>
      );
  }
}

export function Results({ fold }: { fold: Fold }) {
  if (fold.artifacts.size === 0) return <p class="empty">No artifacts.</p>;
  return (
    <div class="results">
      {[...fold.artifacts.values()].map((artifact) => (
        <section key={artifact.artifactId} aria-label={artifact.name || artifact.artifactId}>
          <h3>
            {artifact.name || artifact.artifactId} {artifact.name && <code class="faint">{artifact.artifactId}</code>}
          </h3>
          {artifact.description && <p class="faint">{artifact.description}</p>}
          <Parts parts={artifact.parts ?? []} usual="markdown" />
        </section>
      ))}
    </div>
  );
}
