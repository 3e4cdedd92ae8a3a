"""Histories in which operators act, callers exceed quotas, followers stop reading, and tasks are long."""
