// The fields of a form for a JSON Schema: an object whose properties are texts, numbers, booleans or one of some values.

import type { Json } from "../../shared/messages";

export interface Choice {
  value: string;
  label: string;
  description?: string;
}

export interface Field {
  name: string;
  label: string;
  description?: string;
  type: "text" | "number" | "checkbox" | "select" | "textarea" | "date" | "datetime-local" | "time" | "email" | "url";
  required: boolean;
  choices: Choice[];
  /** The value before the user changes it. */
  defaultValue?: Json;
  min?: number;
  max?: number;
  step?: number | "any";
  maxLength?: number;
  pattern?: string;
  /** The values of a select, by text, which may be numbers. */
  values: Map<string, Json>;
}

/** Longer texts are edited in several lines. */
const MULTILINE_LENGTH = 200;

const FORMATS: Record<string, Field["type"]> = {
  date: "date",
  "date-time": "datetime-local",
  time: "time",
  email: "email",
  uri: "url",
  url: "url",
};

type Schema = { [key: string]: Json };

export function isObject(value: Json | undefined): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const asNumber = (value: Json | undefined) => (typeof value === "number" ? value : undefined);
const asText = (value: Json | undefined) => (typeof value === "string" ? value : undefined);

/** The fields of a schema; undefined if it has others than those that the form knows. */
export function fieldsOf(schema: Schema): Field[] | undefined {
  if (!isObject(schema["properties"])) return undefined;
  const requiredNames = Array.isArray(schema["required"]) ? schema["required"] : [];
  // A Struct of protobuf keeps no order: the needed fields come first, as they are listed, then the others by name.
  const place = (name: string) => (requiredNames.includes(name) ? requiredNames.indexOf(name) : requiredNames.length);
  const order = (one: string, other: string) => place(one) - place(other) || (one < other ? -1 : 1);
  const properties = Object.entries(schema["properties"]).sort(([one], [other]) => order(one, other));
  const fields = properties.map(([name, each]) => (isObject(each) ? fieldOf(name, each, requiredNames.includes(name)) : undefined));
  return fields.includes(undefined) ? undefined : (fields as Field[]);
}

function fieldOf(name: string, schema: Schema, required: boolean): Field | undefined {
  const common = {
    name,
    label: asText(schema["title"]) ?? name,
    description: asText(schema["description"]),
    required,
    choices: [],
    values: new Map<string, Json>(),
    defaultValue: schema["default"],
  };
  const values = enumValues(schema);
  if (values) {
    const byText = new Map(values.map(([choice, value]) => [choice.value, value]));
    return { ...common, type: "select", choices: values.map(([choice]) => choice), values: byText };
  }
  switch (schema["type"]) {
    case "boolean":
      return { ...common, type: "checkbox" };
    case "integer":
    case "number": {
      const step = schema["type"] === "integer" ? 1 : "any";
      return { ...common, type: "number", min: asNumber(schema["minimum"]), max: asNumber(schema["maximum"]), step };
    }
    case "string": {
      const maxLength = asNumber(schema["maxLength"]);
      const type = FORMATS[asText(schema["format"]) ?? ""] ?? (maxLength !== undefined && maxLength > MULTILINE_LENGTH ? "textarea" : "text");
      return { ...common, type, maxLength, pattern: asText(schema["pattern"]) };
    }
    default:
      return undefined;
  }
}

/** The values of `enum`, or of `oneOf` with constants; with the names of `enumNames`, or titles. */
function enumValues(schema: Schema): [Choice, Json][] | undefined {
  const { enum: values, enumNames: names, oneOf, anyOf = oneOf } = schema;
  if (Array.isArray(values)) {
    const labels = Array.isArray(names) ? names : [];
    return values.map((value, index) => [{ value: String(value), label: asText(labels[index]) ?? String(value) }, value]);
  }
  if (!Array.isArray(anyOf) || !anyOf.every((each) => isObject(each) && "const" in each)) return undefined;
  return (anyOf as Schema[]).map(({ const: given = null, title, description }) => {
    const value = String(given);
    return [{ value, label: asText(title) ?? value, description: asText(description) }, given];
  });
}

/** The answer: the object of the form's values. Fields without a value are left out. */
export function formValues(fields: readonly Field[], form: FormData): { [key: string]: Json } {
  const answer: { [key: string]: Json } = {};
  for (const { name, type, values } of fields) {
    const given = String(form.get(name) ?? "");
    if (type === "checkbox") answer[name] = form.has(name);
    else if (given === "") continue;
    else if (type === "number") answer[name] = Number(given);
    else if (type === "datetime-local") answer[name] = new Date(given).toISOString();
    else answer[name] = values.get(given) ?? given;
  }
  return answer;
}
