// Builds a message from the form, and sends it to an agent.

import { call } from "../../shared/api";
import type { Json, Message, Part, Task } from "../../shared/messages";
import { tenantPath } from "../../shared/tenant";

export interface MessageDraft {
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

export type SendResult = { task: Task; message?: undefined } | { message: Message; task?: undefined };

/** Sends a draft with an idempotency key, so that repeating it does not run it twice. */
export async function sendMessage(draft: MessageDraft, key: string): Promise<SendResult> {
  const message = {
    messageId: key,
    role: "ROLE_USER",
    parts: await messageParts(draft),
    ...(draft.taskId && { taskId: draft.taskId }),
    ...(draft.contextId && { contextId: draft.contextId }),
  };
  return call<SendResult>(`${tenantPath(draft.tenant)}/message:send`, {
    body: { message, configuration: { returnImmediately: true } },
    headers: { "Idempotency-Key": key },
  });
}

async function messageParts({ text, asData, files, parts: otherParts }: MessageDraft): Promise<Part[]> {
  const added: Part[] = [];
  if (asData && text.trim()) added.push({ data: JSON.parse(text) as Json });
  else if (text.trim()) added.push({ text });
  added.push(...(otherParts ?? []));
  for (const file of files) {
    added.push({
      raw: await readBase64(file),
      filename: file.name,
      mediaType: file.type || "application/octet-stream",
    });
  }
  return added;
}

function readBase64(file: File): Promise<string> {
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
