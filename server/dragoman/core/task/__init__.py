"""Tasks: event log, planned writes, states, projection, maintenance rules."""
