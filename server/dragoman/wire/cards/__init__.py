"""Agent cards: cards of this server, and cards of remote agents."""
