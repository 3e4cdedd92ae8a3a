"""Bus: how processes notify each other. Hints and committed events; the store is the truth."""
