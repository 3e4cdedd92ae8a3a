from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

ContextT = TypeVar("ContextT")


class Storage(ABC, Generic[ContextT]):
    @abstractmethod
    async def load_task(self, task_id: str, history_length: int | None = None) -> Any: ...

    @abstractmethod
    async def load_context(self, context_id: str) -> ContextT | None: ...
