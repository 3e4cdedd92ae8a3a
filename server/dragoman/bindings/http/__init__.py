"""HTTP: REST, JSON-RPC and WebSocket behind one aiohttp server."""
