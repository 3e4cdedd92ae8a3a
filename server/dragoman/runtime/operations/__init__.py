"""The A2A operations, the same for every binding."""
