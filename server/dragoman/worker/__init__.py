"""Agents in a process of their own, which dials in to a server (dragoman.worker.v1).

The functions of an app run here as they would in the server: what they put goes through the same open batch, and over
the stream instead of into the store. Nothing is kept here; a worker that dies loses nothing that a caller has seen.
"""

from dragoman.runtime.observe.metrics import Watchdog
from dragoman.worker.worker import Worker

__all__ = ["Watchdog", "Worker"]
