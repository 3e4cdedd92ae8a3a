"""Test kit for authors of agents."""
