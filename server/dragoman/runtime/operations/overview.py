"""The overview for operators: what waits and runs now, and what was done in the last hours, by agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from dragoman.core.access.identity import Identity
from dragoman.core.daily_usage import HourlyUsageQuery, HourlyUsageRow, hour_of
from dragoman.core.task import states
from dragoman.core.task.cursors import OpenTasks, TaskSearch, open_task_counts
from dragoman.ports import Store
from dragoman.runtime.operations.operator_tasks import within_grants

_GROUPS: Final[Mapping[int, int]] = {states.AUTH_REQUIRED: states.INPUT_REQUIRED}
"""States that are counted with another: both wait for the caller."""


@dataclass(slots=True)
class AgentOverview:
    """What one agent does. `open_tasks`: by SUBMITTED, WORKING, and INPUT_REQUIRED for all that wait for the caller."""

    agent: str
    open_tasks: dict[int, OpenTasks] = field(default_factory=dict)
    hours: list[HourlyUsageRow] = field(default_factory=list)
    """The hours in which its tasks did something, the oldest first."""


class Overviews:
    """Reads overviews. `clock`: milliseconds since the epoch."""

    def __init__(self, store: Store, clock: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock

    async def read(
        self, identity: Identity, hours: int, scopes: frozenset[str], agents: frozenset[str]
    ) -> tuple[int, list[AgentOverview]]:
        """The first of the last hours, and the agents that have unfinished tasks or did something since, by id.

        The scopes and agents are limited to the grants of an operator or viewer. Raises PermissionDenied for others.
        """
        query = within_grants(identity, TaskSearch(scopes=scopes, agents=agents))
        first_hour = hour_of(self._clock()) - hours + 1
        found: dict[str, AgentOverview] = {}
        for count in open_task_counts(map(_grouped, await self._store.open_tasks(query))):
            found.setdefault(count.agent, AgentOverview(count.agent)).open_tasks[count.state] = count
        for row in await self._store.hourly_usage(HourlyUsageQuery(first_hour, query.scopes, query.agents)):
            found.setdefault(row.agent, AgentOverview(row.agent)).hours.append(row)
        return first_hour, [overview for _, overview in sorted(found.items())]


def _grouped(count: OpenTasks) -> OpenTasks:
    return replace(count, state=_GROUPS.get(count.state, count.state))
