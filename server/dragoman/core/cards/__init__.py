"""Agent cards: agent descriptions, overrides, extensions and security schemes."""
