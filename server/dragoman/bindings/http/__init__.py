"""HTTP: REST, JSON-RPC and WebSocket on one aiohttp server."""
