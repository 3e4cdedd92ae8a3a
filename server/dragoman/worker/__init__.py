"""A worker: a process that dials in to a server and runs agents for it (dragoman.worker.v1).

Agents run as in the server: their events go through the same batches, but to the stream instead of the store. A worker
stores nothing, so its death loses nothing that a caller has seen.
"""

from dragoman.runtime.observe.watchdog import Watchdog
from dragoman.worker.worker import Worker

__all__ = ["Watchdog", "Worker"]
