// The official TypeScript client 2.x: MCP 2026-07-28, with tasks by ext-tasks, and 2025-11-25.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { createTaskSessionFromClient } from "@modelcontextprotocol/ext-tasks/client";

const INFO = { name: "checks", version: "1" };
const ATTEMPTS = 50;
const PAUSE = 200;
const TASKS = "io.modelcontextprotocol/tasks";

export async function connect(url, { answer, tasks, mode }) {
  const capabilities = {
    ...(answer ? { elicitation: { form: {}, url: {} } } : {}),
    ...(tasks ? { extensions: { [TASKS]: {} } } : {}),
  };
  const client = new Client(INFO, { capabilities, ...(mode === "auto" ? { versionNegotiation: { mode } } : {}) });
  if (answer) client.setRequestHandler("elicitation/create", ({ params }) => answer(params));
  const transport = new StreamableHTTPClientTransport(new URL(url));
  await client.connect(transport);
  const session = {
    version: client.getNegotiatedProtocolVersion(),
    tools: async () => (await client.listTools()).tools,
    call: (name, args, { limit, meta, onProgress }) =>
      client.callTool(
        { name, arguments: args, ...(meta ? { _meta: meta } : {}) },
        { ...(limit ? { timeout: limit * 1000 } : {}), ...(onProgress ? { onprogress: onProgress } : {}) },
      ),
    async listen(handles, notify) {
      if (handles.length) {
        // The client knows no such notifications, and drops the filter of an extension from what it reads.
        const before = client.fallbackNotificationHandler;
        client.fallbackNotificationHandler = async (notification) => {
          if (notification.method === "notifications/tasks") notify(notification.params);
          await before?.(notification);
        };
        return client.listen({ taskIds: handles });
      }
      client.setNotificationHandler("notifications/tools/list_changed", () => notify({}));
      return client.listen({ toolsListChanged: true });
    },
    async close() {
      await transport.terminateSession();
      await client.close();
    },
  };
  return tasks ? withTasks(session, client, url, capabilities, answer) : session;
}

/** The session with ext-tasks, whose host sends its requests and answers its questions. */
function withTasks(session, client, url, capabilities, answer) {
  const taskSession = createTaskSessionFromClient(client, {
    endpointId: url,
    rawDispatch: (request, options) => dispatch(url, request, options),
    v2RequestFraming: { protocolVersion: session.version, clientInfo: INFO, clientCapabilities: capabilities },
    ...(answer ? { onInputRequest: ({ params }) => answer(params) } : {}),
  });
  const executions = new Set();
  const taskOf = (execution) => {
    executions.add(execution);
    return {
      id: execution.handle.taskId,
      get: async () => raw(await taskSession.task(execution.handle.taskId).snapshot()),
      result: async () => resultOf((await execution.settle({ close: false })).outcome),
      cancel: () => execution.cancel(),
    };
  };
  return {
    ...session,
    call: async (name, args) => resultOf((await (await taskSession.callTool(name, args)).settle()).outcome),
    start: async (name, args) => taskOf(await taskSession.callTool(name, args)),
    handle: (id) => ({
      id,
      get: async () => raw(await taskSession.task(id).snapshot()),
      result: async () => resultOf(await taskSession.task(id).result()),
      cancel: () => taskSession.task(id).cancel(),
    }),
    async close() {
      for (const execution of executions) {
        // Otherwise the end of the session cancels its task, as it does before `result` knows of the detachment.
        await execution.detach();
        await execution.result().catch(() => {});
      }
      await taskSession.close();
      await session.close();
    },
  };
}

const raw = (view) => view.raw;

function resultOf(outcome) {
  if (outcome.status === "completed") return outcome.result;
  throw outcome.error ?? new Error(`the task was ${outcome.status}`);
}

let count = 0;

/** Sends a request that the client has no types for. One about a task is sent again while the server is away. */
async function dispatch(url, request, options = {}) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await send(url, request, options);
    } catch (error) {
      if (options.signal?.aborted || !request.method.startsWith("tasks/") || attempt === ATTEMPTS) throw error;
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
    }
  }
}

async function send(url, request, { signal, context }) {
  const headers = new Headers({
    accept: "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": request.method,
    ...(request.params.name ? { "mcp-name": request.params.name } : {}),
  });
  for (const [name, value] of Object.entries(context?.headers ?? {})) headers.set(name, value);
  const body = JSON.stringify({ jsonrpc: "2.0", id: `task-${++count}`, ...request });
  const response = await fetch(url, { method: "POST", signal, headers, body });
  const text = await response.text();
  const isStream = response.headers.get("content-type").startsWith("text/event-stream");
  const messages = isStream
    ? text.split("\n").flatMap((line) => (line.startsWith("data:") && line.slice(5).trim() ? [JSON.parse(line.slice(5))] : []))
    : [JSON.parse(text)];
  const { result, error } = messages.find((message) => "result" in message || "error" in message);
  return error ? { kind: "error", error } : { kind: "result", result };
}
