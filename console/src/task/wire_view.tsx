// One event in each protocol version.

import { ApiError, call, encodeSegment } from "../shared/api";
import { CopyableValue, ErrorMessage } from "../shared/components";
import { Code } from "../shared/content/code";
import { formatBytes } from "../shared/format";
import type { EncodedEvent } from "../shared/messages";
import { usePolling } from "../shared/polling";
import { route, updateQuery } from "../shared/route";
import { tenantQuery } from "../shared/tenant";

interface EventPage {
  events?: EncodedEvent[];
  oldest?: number;
  last?: number;
}

const ENCODINGS = [
  { id: "v1", name: "1.0 JSON" },
  { id: "v03", name: "0.3 JSON" },
  { id: "v01", name: "0.1 JSON" },
  { id: "text", name: "protobuf text" },
];

export function WireView({ id, tenant, last }: { id: string; tenant: string; last: number }) {
  const query = route.value.query;
  const sequence = Number(query.get("event")) || 1;
  const encoding = query.get("form") ?? "v1";
  const { value, error } = usePolling(
    async (signal) => {
      const parameters = new URLSearchParams({ ...tenantQuery(tenant), after: String(sequence - 1), limit: "1" });
      return call<EventPage>(`operations/tasks/${encodeSegment(id)}/events?${parameters}`, { signal });
    },
    0,
    [id, tenant, sequence],
  );
  const event = value?.events?.[0];
  const newest = Math.max(last, value?.last ?? 0);
  const selectEvent = (number: number) => updateQuery({ event: String(Math.min(Math.max(number, 1), Math.max(newest, 1))) });
  if (error instanceof ApiError && (error.status === 401 || error.status === 403)) {
    return <p class="empty">Only operators can see events in every protocol version.</p>;
  }
  return (
    <div class="wire">
      <div class="chosen-event">
        <button type="button" onClick={() => selectEvent(sequence - 1)} disabled={sequence <= 1} aria-label="Previous event">
          ‹
        </button>
        <label>
          Event <input type="number" min={1} max={newest} value={sequence} onChange={(change) => selectEvent(Number(change.currentTarget.value))} />{" "}
          of {newest}
        </label>
        <button type="button" onClick={() => selectEvent(sequence + 1)} disabled={sequence >= newest} aria-label="Next event">
          ›
        </button>
        <div class="forms" role="radiogroup" aria-label="Form">
          {ENCODINGS.map((one) => (
            <label key={one.id}>
              <input type="radio" name="form" checked={one.id === encoding} onChange={() => updateQuery({ form: one.id })} /> {one.name}
            </label>
          ))}
        </div>
      </div>
      <ErrorMessage error={error} />
      {event && event.sequence !== sequence && (
        <p class="faint">
          Event {sequence} was removed; this is event {event.sequence}.
        </p>
      )}
      {event && encodedTexts(event, encoding).map((text, index) => <EncodedText key={index} text={text} />)}
    </div>
  );
}

function encodedTexts(event: EncodedEvent, encoding: string): string[] {
  if (encoding === "v03") return [event.v03Json];
  if (encoding === "v01") return event.v01Json;
  return [encoding === "text" ? event.text : event.v1Json];
}

function EncodedText({ text }: { text: string }) {
  const size = new TextEncoder().encode(text).length;
  return (
    <section aria-label="Event">
      <p class="faint">
        <CopyableValue value={text} name="the event">
          {formatBytes(size)}
        </CopyableValue>
      </p>
      {text.startsWith("{") ? <Code text={JSON.stringify(JSON.parse(text), null, 2)} language="json" /> : <pre class="data">{text}</pre>}
    </section>
  );
}
