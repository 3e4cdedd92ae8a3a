from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class EventBus(ABC):
    @abstractmethod
    async def emit(self, task_id: str, event: Any) -> None: ...
