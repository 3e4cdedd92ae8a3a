// A new task: the agents to choose from, the examples of their skills, and a form where an agent declares its input.

import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { agents } from "../../shared/agents";
import { call, encodeSegment, newIdempotencyKey } from "../../shared/api";
import { ErrorMessage } from "../../shared/components";
import { schemasOf, type Agent, type Card, type Json } from "../../shared/messages";
import { Page } from "../../shared/page";
import { usePolling } from "../../shared/polling";
import { href, navigate, route } from "../../shared/route";
import { DEFAULT_SCOPE, tenantOf } from "../../shared/tenant";
import { SchemaForm } from "./answer_form";
import { draft, MessageForm } from "./message_form";
import { fieldsOf, type Field } from "./schema_fields";
import { sendMessage } from "./send";

/** More agents are a select. */
const MAX_CHOICES = 12;
const MAX_EXAMPLES = 6;

export function NewTask() {
  const served = agents.value ?? [];
  const query = route.value.query;
  const agent = served.find((agent) => agent.id === query.get("agent")) ?? served.find((agent) => agent.root) ?? served[0];
  if (!agent) return <p class="empty">This server has no agents yet.</p>;
  const scope = query.get("scope") || DEFAULT_SCOPE;
  return (
    <Page title="New task">
      <div class="new">
        {scope !== DEFAULT_SCOPE && <p class="faint">In the scope {scope}.</p>}
        <AgentChoice served={served} agent={agent} />
        <AgentForms key={`${agent.id} ${scope} ${query.get("text") ?? ""}`} agent={agent} scope={scope} />
      </div>
    </Page>
  );
}

/** The agents as cards; a select for many. */
function AgentChoice({ served, agent }: { served: readonly Agent[]; agent: Agent }) {
  const choose = (id: string) => navigate(["new"], { agent: id, scope: route.value.query.get("scope") ?? "" });
  if (served.length > MAX_CHOICES) {
    return (
      <label class="agent-select">
        Agent
        <select value={agent.id} onChange={(event) => choose(event.currentTarget.value)}>
          {served.map((agent) => (
            <option key={agent.id} value={agent.id}>
              {agent.name}
            </option>
          ))}
        </select>
      </label>
    );
  }
  return (
    <fieldset class="agent-choice">
      <legend>Agent</legend>
      {served.map((option) => (
        <label key={option.id}>
          <input type="radio" name="agent" value={option.id} checked={option.id === agent.id} onChange={() => choose(option.id)} />
          <b>{option.name}</b>
          <span class="faint">{option.description}</span>
        </label>
      ))}
    </fieldset>
  );
}

function AgentForms({ agent, scope }: { agent: Agent; scope: string }) {
  const path = `${encodeSegment(agent.id)}/.well-known/agent-card.json`;
  const { value: card, error } = usePolling((signal) => call<Card>(path, { signal }), 0, [agent.id]);
  const tenant = tenantOf(scope, agent.id);
  const fields = card && inputFields(card);
  const startsWithText = useRef(draft.value !== undefined || route.value.query.has("text")).current;
  if (!card && !error) return null; // the forms depend on it
  return (
    <>
      <p class="about">
        <a href={href(["agents", agent.id])}>About {agent.name}</a>
      </p>
      {card && <Examples agent={agent.id} card={card} />}
      {fields && !startsWithText && <InputForm tenant={tenant} fields={fields} />}
      <MessageForm tenant={tenant} isCollapsed={fields !== undefined && !startsWithText} collapsedText="Write a message instead" />
    </>
  );
}

/** The fields of the agent's declared input, or of its only skill that declares one. */
function inputFields(card: Card): Field[] | undefined {
  const schemas = schemasOf(card);
  const inputs = Object.values(schemas).flatMap(({ input }) => (input ? [input] : []));
  const input = schemas[""]?.input ?? (inputs.length === 1 ? inputs[0] : undefined);
  const fields = input && fieldsOf(input);
  return fields?.length ? fields : undefined;
}

function Examples({ agent, card }: { agent: string; card: Card }) {
  const examples = [...new Set((card.skills ?? []).flatMap((skill) => skill.examples ?? []))].slice(0, MAX_EXAMPLES);
  if (examples.length === 0) return null;
  return (
    <section class="examples" aria-label="Examples">
      <h3>Try an example</h3>
      <p>
        {examples.map((example) => (
          <a key={example} class="button example" href={href(["new"], { agent, text: example })}>
            {example}
          </a>
        ))}
      </p>
    </section>
  );
}

/** Sends the values of the fields as data. */
function InputForm({ tenant, fields }: { tenant: string; fields: readonly Field[] }) {
  const sending = useSignal(false);
  const error = useSignal<unknown>(undefined);
  const key = useRef({ text: "", key: "" });
  const send = async (data: Json) => {
    // The same values again have the same idempotency key: a repeated click begins one task.
    const text = JSON.stringify(data);
    if (key.current.text !== text) key.current = { text, key: newIdempotencyKey() };
    sending.value = true;
    error.value = undefined;
    try {
      const message = { tenant, text: "", asData: false, files: [], parts: [{ data }], taskId: "", contextId: "" };
      const result = await sendMessage(message, key.current.key);
      if (result.task) navigate(["tasks", tenant, result.task.id], { tab: "conversation" });
    } catch (failed) {
      error.value = failed;
    }
    sending.value = false;
  };
  return (
    <section class="input-form" aria-label="Input">
      <SchemaForm fields={fields} busy={sending.value} label="Input by fields" submitText="Send" answer={(value) => void send(value)} />
      <ErrorMessage error={error.value} />
    </section>
  );
}
