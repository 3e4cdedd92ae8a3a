"""One turn: run the agent, batch its events, write its end."""
