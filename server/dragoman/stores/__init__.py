"""Stores of tasks, one folder each. They use `shared`, and never each other."""
