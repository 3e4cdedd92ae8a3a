"""The Model Context Protocol: an endpoint for its clients, and its servers as agents."""
