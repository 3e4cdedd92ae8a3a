"""Agents. Functions, workers and upstreams implement `dragoman.ports.Agent`."""
