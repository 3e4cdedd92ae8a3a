"""The MCP endpoint: agents as tools, tasks as durable calls (Model Context Protocol 2026-07-28 and 2025-11-25)."""
