// The official TypeScript SDK 1.x: MCP 2025-11-25.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CallToolResultSchema, ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";

export async function connect(url, { answer }) {
  const client = new Client(
    { name: "checks", version: "1" },
    { capabilities: answer ? { elicitation: { form: {}, url: {} } } : {} },
  );
  if (answer) client.setRequestHandler(ElicitRequestSchema, ({ params }) => answer(params));
  const transport = new StreamableHTTPClientTransport(new URL(url));
  await client.connect(transport);
  return {
    version: transport.protocolVersion,
    tools: async () => (await client.listTools()).tools,
    call: (name, args, { limit, meta, onProgress }) =>
      client.callTool({ name, arguments: args, ...(meta ? { _meta: meta } : {}) }, CallToolResultSchema, {
        ...(limit ? { timeout: limit * 1000 } : {}),
        ...(onProgress ? { onprogress: onProgress } : {}),
      }),
    async close() {
      await transport.terminateSession();
      await client.close();
    },
  };
}
