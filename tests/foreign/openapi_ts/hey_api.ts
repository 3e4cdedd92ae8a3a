// A client of @hey-api/openapi-ts. It compiles only if the document has the types.

import type { Calls } from "./calls";
import { createClient } from "./client/client";
import { v1GetTask, v1ListTasks, v1SendMessage } from "./client/sdk.gen";

export function connect(baseUrl: string): Calls {
  const client = createClient({ baseUrl });
  return {
    async send(text) {
      const { data, error } = await v1SendMessage({
        client,
        body: { message: { messageId: crypto.randomUUID(), role: "ROLE_USER", parts: [{ text }] } },
      });
      if (!data?.task) throw new Error(error?.error.message ?? "no task");
      return data.task;
    },
    async get(task) {
      const { data, error } = await v1GetTask({ client, path: { task } });
      if (!data) throw new Error(error?.error.message);
      return data;
    },
    async list(contextId) {
      const { data, error } = await v1ListTasks({ client, query: { contextId, includeArtifacts: true, pageSize: 10 } });
      if (!data) throw new Error(error?.error.message);
      return data.tasks;
    },
    async refusal(task) {
      const { error, response } = await v1GetTask({ client, path: { task } });
      return [response?.status ?? 0, error?.error.details[0]?.reason];
    },
  };
}
