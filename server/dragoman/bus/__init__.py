"""Floor 3: how processes tell each other what happened. Hints and committed events; the store is the truth."""
