"""Floor 1: what a task is. Pure functions and values; nothing here does I/O."""
