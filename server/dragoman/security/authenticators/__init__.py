"""Identify callers by bearer token, API key or JWT."""
