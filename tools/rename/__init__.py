"""Applies tables of renames and moves to the whole code base, guided by mypy's types."""
