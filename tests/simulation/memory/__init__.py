"""A store in memory, in pure Python: the model that the simulated servers share."""
