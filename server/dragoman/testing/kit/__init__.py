"""The test kit for authors of agents."""
