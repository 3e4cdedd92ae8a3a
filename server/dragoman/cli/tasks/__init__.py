"""Commands that work with tasks."""
