// Reads what a question of an agent can be answered with: from data parts with choices, a JSON Schema, or approvals.

import { fieldsOf, isSchema as isObject, type Choice, type Field } from "./schema_fields";
import type { Json, Part } from "../../shared/messages";

export type Question =
  | { kind: "text" }
  | { kind: "link"; links: string[] }
  | { kind: "choices"; choices: Choice[]; approves: boolean }
  | { kind: "fields"; fields: Field[] };

/** More choices are no buttons: the user types. */
const MOST_CHOICES = 12;

const APPROVAL: Choice[] = [
  { value: "yes", label: "Approve" },
  { value: "no", label: "Deny" },
];
const YES_OR_NO: Choice[] = [
  { value: "yes", label: "Yes" },
  { value: "no", label: "No" },
];

type Fields = { [key: string]: Json };

/** How a question of these parts is answered, in a task with this state. */
export function questionOf(state: string, parts: readonly Part[]): Question {
  if (/AUTH_REQUIRED$/.test(state)) return { kind: "link", links: linksOf(parts) };
  for (const { data } of parts) {
    const found = isObject(data) ? questionIn(data) : undefined;
    if (found) return found;
  }
  const text = parts.map((part) => part.text ?? "").join(" ");
  if (/\b(yes or no|yes\/no|y\/n)\b/i.test(text)) return { kind: "choices", choices: YES_OR_NO, approves: true };
  return { kind: "text" };
}

/** What a part that only describes the form of an answer offers, in words; empty for other parts. */
export function offerOf({ data }: Part): string {
  if (!isObject(data) || !Object.keys(data).every((name) => FORMS.has(name))) return "";
  const found = questionIn(data);
  if (found?.kind === "choices") return `Choices: ${found.choices.map((choice) => choice.label).join(", ")}`;
  return found?.kind === "fields" ? `Fields: ${found.fields.map((field) => field.label).join(", ")}` : "";
}

const FORMS: ReadonlySet<string> = new Set(["choices", "options", "schema", "requestedSchema", "missing"]);

function questionIn(data: Fields): Question | undefined {
  const { choices = data["options"], schema = data["requestedSchema"], missing, interrupts } = data;
  if (Array.isArray(choices)) return choicesOf(choices.map(choiceOf));
  if (isObject(schema)) return schemaOf(schema);
  if (Array.isArray(missing)) {
    const properties = Object.fromEntries(missing.map((name) => [String(name), { type: "string" }]));
    return schemaOf({ properties, required: missing });
  }
  if (Array.isArray(data["approvals"])) return { kind: "choices", choices: APPROVAL, approves: true };
  // LangGraph: the value of the only interrupt, which its middleware calls `action_requests` if it wants an approval.
  const [only] = Array.isArray(interrupts) ? interrupts : [];
  if (isObject(only) && isObject(only["value"]) && Array.isArray(interrupts) && interrupts.length === 1) {
    if ("action_requests" in only["value"]) return { kind: "choices", choices: APPROVAL, approves: true };
    return questionIn(only["value"]);
  }
  return undefined;
}

function schemaOf(schema: Fields): Question | undefined {
  const [one] = fieldsOf({ properties: { answer: schema } }) ?? [];
  if (one?.type === "select") return choicesOf(one.choices);
  if (one?.type === "checkbox") return { kind: "choices", choices: YES_OR_NO, approves: true };
  const fields = fieldsOf(schema);
  return fields?.length ? { kind: "fields", fields } : undefined;
}

function choicesOf(choices: readonly (Choice | undefined)[]): Question | undefined {
  const known = choices.filter((choice) => choice !== undefined);
  if (!known.length || known.length > MOST_CHOICES || known.length < choices.length) return undefined;
  return { kind: "choices", choices: known, approves: false };
}

/** A choice: its value, or an object with value, label and description; undefined for others. */
function choiceOf(given: Json): Choice | undefined {
  if (!isObject(given)) return typeof given === "object" ? undefined : { value: String(given), label: String(given) };
  const { label: named, description } = given;
  const value = given["value"] ?? given["const"] ?? given["id"] ?? named;
  const label = named ?? given["title"] ?? given["name"] ?? value;
  if (value === undefined || typeof value === "object" || typeof label !== "string") return undefined;
  return { value: String(value), label, description: typeof description === "string" ? description : undefined };
}

function linksOf(parts: readonly Part[]): string[] {
  const found = parts.flatMap((part) => {
    const url = isObject(part.data) ? (part.data["url"] ?? part.data["link"]) : part.url;
    const inText = part.text?.match(/\bhttps?:\/\/[^\s<>"'`)\]]+/gi) ?? [];
    return [...(typeof url === "string" ? [url] : []), ...inText.map((link) => link.replace(/[.,;:!?*_]+$/, ""))];
  });
  return [...new Set(found)].filter((link) => URL.canParse(link));
}
