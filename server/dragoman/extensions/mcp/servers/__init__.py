"""MCP servers as agents: the tools of a server are the skills of one agent.

`registry.py` knows all servers, `connection.py` keeps the SDK's client to one of them, over the transports in
`transport.py`. `discovery.py` makes an agent spec of its tools, `agent.py` is the agent as the runtime sees it,
`turn.py` one turn: `tool_choice.py` reads which tool a message calls, `content.py` turns results into artifacts,
`questions.py` elicitations into questions, and messages into their answers. `open_calls.py` keeps the calls of older
servers open while they wait for an answer, `call_state.py` is what is stored with a task, `tasks_extension.py` speaks
the tasks extension. All of it is imported with the first server: it needs the SDK (`pip install 'dragoman[mcp]'`).
"""
