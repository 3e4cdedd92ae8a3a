// The answers to an agent's question, read from data parts with choices, a JSON Schema, or approvals.

import type { Json, Part } from "../../shared/messages";
import { fieldsOf, isObject, type Choice, type Field } from "./schema_fields";

export type Question =
  | { kind: "text" }
  | { kind: "link"; links: string[] }
  | { kind: "choices"; choices: Choice[]; isApproval: boolean }
  | { kind: "fields"; fields: Field[] };

/** More choices are no buttons: the user types. */
const MAX_CHOICES = 12;

const APPROVAL: Choice[] = [
  { value: "yes", label: "Approve" },
  { value: "no", label: "Deny" },
];
const YES_OR_NO: Choice[] = [
  { value: "yes", label: "Yes" },
  { value: "no", label: "No" },
];

type JsonObject = { [key: string]: Json };

/** How a question of these parts is answered, in a task with this state. */
export function questionOf(state: string, parts: readonly Part[]): Question {
  if (/AUTH_REQUIRED$/.test(state)) return { kind: "link", links: linksOf(parts) };
  for (const { data } of parts) {
    const question = isObject(data) ? questionIn(data) : undefined;
    if (question) return question;
  }
  const text = parts.map((part) => part.text ?? "").join(" ");
  if (/\b(yes or no|yes\/no|y\/n)\b/i.test(text)) return { kind: "choices", choices: YES_OR_NO, isApproval: true };
  return { kind: "text" };
}

/** The answers offered by a part that only describes the form of an answer, as text; empty for other parts. */
export function offeredAnswers({ data }: Part): string {
  if (!isObject(data) || !Object.keys(data).every((name) => FORM_FIELDS.has(name))) return "";
  const question = questionIn(data);
  if (question?.kind === "choices") return `Choices: ${question.choices.map((choice) => choice.label).join(", ")}`;
  return question?.kind === "fields" ? `Fields: ${question.fields.map((field) => field.label).join(", ")}` : "";
}

const FORM_FIELDS: ReadonlySet<string> = new Set(["choices", "options", "schema", "requestedSchema", "missing"]);

function questionIn(data: JsonObject): Question | undefined {
  const { choices = data["options"], schema = data["requestedSchema"], missing, interrupts } = data;
  if (Array.isArray(choices)) return choicesOf(choices.map(choiceOf));
  if (isObject(schema)) return schemaOf(schema);
  if (Array.isArray(missing)) {
    const properties = Object.fromEntries(missing.map((name) => [String(name), { type: "string" }]));
    return schemaOf({ properties, required: missing });
  }
  if (Array.isArray(data["approvals"])) return { kind: "choices", choices: APPROVAL, isApproval: true };
  // LangGraph: the value of the only interrupt, which its middleware calls `action_requests` if it wants an approval.
  const [interrupt] = Array.isArray(interrupts) ? interrupts : [];
  if (isObject(interrupt) && isObject(interrupt["value"]) && Array.isArray(interrupts) && interrupts.length === 1) {
    if ("action_requests" in interrupt["value"]) return { kind: "choices", choices: APPROVAL, isApproval: true };
    return questionIn(interrupt["value"]);
  }
  return undefined;
}

function schemaOf(schema: JsonObject): Question | undefined {
  const [answerField] = fieldsOf({ properties: { answer: schema } }) ?? [];
  if (answerField?.type === "select") return choicesOf(answerField.choices);
  if (answerField?.type === "checkbox") return { kind: "choices", choices: YES_OR_NO, isApproval: true };
  const fields = fieldsOf(schema);
  return fields?.length ? { kind: "fields", fields } : undefined;
}

function choicesOf(choices: readonly (Choice | undefined)[]): Question | undefined {
  const known = choices.filter((choice) => choice !== undefined);
  if (!known.length || known.length > MAX_CHOICES || known.length < choices.length) return undefined;
  return { kind: "choices", choices: known, isApproval: false };
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
  const links = parts.flatMap((part) => {
    const url = isObject(part.data) ? (part.data["url"] ?? part.data["link"]) : part.url;
    const inText = part.text?.match(/\bhttps?:\/\/[^\s<>"'`)\]]+/gi) ?? [];
    return [...(typeof url === "string" ? [url] : []), ...inText.map((link) => link.replace(/[.,;:!?*_]+$/, ""))];
  });
  return [...new Set(links)].filter((link) => URL.canParse(link));
}
