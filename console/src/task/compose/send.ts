// Builds a message from the form, and sends it to an agent.

import { call } from "../../shared/api";
import { pathOf } from "../../shared/tenant";
import type { Json, Message, Part, Task } from "../../shared/messages";

export interface Draft {
  tenant: string;
  text: string;
  /** The text is JSON and is sent as a data part. */
  asData: boolean;
  files: readonly File[];
  /** Further parts, which are sent as they are. */
  parts?: readonly Part[];
  taskId: string;
  contextId: string;
}

export type Sent = { task: Task; message?: undefined } | { message: Message; task?: undefined };

/** Sends a draft with an idempotency key, so that repeating it does not run it twice. */
export async function send(draft: Draft, key: string): Promise<Sent> {
  const message = {
    messageId: key,
    role: "ROLE_USER",
    parts: await parts(draft),
    ...(draft.taskId && { taskId: draft.taskId }),
    ...(draft.contextId && { contextId: draft.contextId }),
  };
  return call<Sent>(`${pathOf(draft.tenant)}/message:send`, {
    body: { message, configuration: { returnImmediately: true } },
    headers: { "Idempotency-Key": key },
  });
}

async function parts({ text, asData, files, parts: further }: Draft): Promise<Part[]> {
  const made: Part[] = [];
  if (asData && text.trim()) made.push({ data: JSON.parse(text) as Json });
  else if (text.trim()) made.push({ text });
  made.push(...(further ?? []));
  for (const file of files) {
    made.push({
      raw: await base64(file),
      filename: file.name,
      mediaType: file.type || "application/octet-stream",
    });
  }
  return made;
}

function base64(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => {
      const url = String(reader.result);
      resolve(url.slice(url.indexOf(",") + 1));
    };
    reader.onerror = () => reject(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
}

/** A unique key. `crypto.randomUUID` exists only in secure contexts. */
export function fresh(): string {
  const random = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
