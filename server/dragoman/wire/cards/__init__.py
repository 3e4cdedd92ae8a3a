"""Agent cards: those served here, and those of other agents."""
