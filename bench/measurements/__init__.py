"""Measurements: each module measures some sections of a run."""
