"""Called agents of a simulation: upstream agents, MCP servers and workers, on machines of their own."""
