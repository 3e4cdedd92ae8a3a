// One event in each protocol version.

import { useAsked } from "../shared/polling";
import { Code } from "../shared/content/code";
import { Copy, Problem } from "../shared/components";
import { refine, route } from "../shared/route";
import { bytes } from "../shared/format";
import { call, Failure, segment } from "../shared/api";
import { selection } from "../shared/tenant";
import type { EncodedEvent } from "../shared/messages";

interface Listed {
  events?: EncodedEvent[];
  oldest?: number;
  last?: number;
}

const FORMS = [
  { id: "v1", name: "1.0 JSON" },
  { id: "v03", name: "0.3 JSON" },
  { id: "v01", name: "0.1 JSON" },
  { id: "text", name: "protobuf text" },
];

export function WireView({ id, tenant, last }: { id: string; tenant: string; last: number }) {
  const query = route.value.query;
  const at = Number(query.get("event")) || 1;
  const form = query.get("form") ?? "v1";
  const { value, error } = useAsked(
    async (signal) => {
      const asked = new URLSearchParams({ ...selection(tenant), after: String(at - 1), limit: "1" });
      return call<Listed>(`operations/tasks/${segment(id)}/events?${asked}`, { signal });
    },
    0,
    [id, tenant, at],
  );
  const event = value?.events?.[0];
  const newest = Math.max(last, value?.last ?? 0);
  const step = (to: number) => refine({ event: String(Math.min(Math.max(to, 1), Math.max(newest, 1))) });
  if (error instanceof Failure && (error.status === 401 || error.status === 403)) {
    return <p class="empty">Only operators can see events in every protocol version.</p>;
  }
  return (
    <div class="wire">
      <div class="chosen-event">
        <button type="button" onClick={() => step(at - 1)} disabled={at <= 1} aria-label="Previous event">
          ‹
        </button>
        <label>
          Event{" "}
          <input type="number" min={1} max={newest} value={at} onChange={(change) => step(Number(change.currentTarget.value))} /> of {newest}
        </label>
        <button type="button" onClick={() => step(at + 1)} disabled={at >= newest} aria-label="Next event">
          ›
        </button>
        <div class="forms" role="radiogroup" aria-label="Form">
          {FORMS.map((one) => (
            <label key={one.id}>
              <input type="radio" name="form" checked={one.id === form} onChange={() => refine({ form: one.id })} /> {one.name}
            </label>
          ))}
        </div>
      </div>
      <Problem error={error} />
      {event && event.sequence !== at && <p class="faint">Event {at} was removed; this is event {event.sequence}.</p>}
      {event && texts(event, form).map((text, index) => <Form key={index} text={text} />)}
    </div>
  );
}

function texts(event: EncodedEvent, form: string): string[] {
  if (form === "v03") return [event.v03Json];
  if (form === "v01") return event.v01Json;
  return [form === "text" ? event.text : event.v1Json];
}

function Form({ text }: { text: string }) {
  const size = new TextEncoder().encode(text).length;
  return (
    <section aria-label="Event">
      <p class="faint">
        <Copy value={text} name="the event">
          {bytes(size)}
        </Copy>
      </p>
      {text.startsWith("{") ? <Code text={JSON.stringify(JSON.parse(text), null, 2)} language="json" /> : <pre class="data">{text}</pre>}
    </section>
  );
}
