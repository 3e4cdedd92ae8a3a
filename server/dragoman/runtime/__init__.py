"""Floor 4: what happens to a task. Sees ports only; no transport, no database, no broker by name."""

from dragoman.runtime.call import Call, Limits
from dragoman.runtime.coalesce import Coalesce
from dragoman.runtime.opening import Auditing, Pushing, Runtime, open_runtime
from dragoman.runtime.service import TaskService

__all__ = ["Auditing", "Call", "Coalesce", "Limits", "Pushing", "Runtime", "TaskService", "open_runtime"]
