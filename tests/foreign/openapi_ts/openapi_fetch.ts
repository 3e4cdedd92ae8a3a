// Types of openapi-typescript, called with openapi-fetch. It compiles only if the document has the types.

import createClient from "openapi-fetch";
import type { Calls } from "./calls";
import type { paths } from "./schema";

export function connect(baseUrl: string): Calls {
  const client = createClient<paths>({ baseUrl });
  return {
    async send(text) {
      const { data, error } = await client.POST("/message:send", {
        body: { message: { messageId: crypto.randomUUID(), role: "ROLE_USER", parts: [{ text }] } },
      });
      if (!data?.task) throw new Error(error?.error.message ?? "no task");
      return data.task;
    },
    async get(task) {
      const { data, error } = await client.GET("/tasks/{task}", { params: { path: { task } } });
      if (!data) throw new Error(error.error.message);
      return data;
    },
    async list(contextId) {
      const { data, error } = await client.GET("/tasks", {
        params: { query: { contextId, includeArtifacts: true, pageSize: 10 } },
      });
      if (!data) throw new Error(error.error.message);
      return data.tasks;
    },
    async refusal(task) {
      const { error, response } = await client.GET("/tasks/{task}", { params: { path: { task } } });
      return [response.status, error?.error.details[0]?.reason];
    },
  };
}
