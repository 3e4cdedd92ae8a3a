"""The domain, layer 1: tasks, access, limits and cards. Pure functions and values, without I/O."""
