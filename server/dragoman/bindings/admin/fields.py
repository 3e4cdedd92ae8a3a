"""Request and response fields that several operator calls share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from dragoman.core.access.identity import AGENT_GRANT_PREFIX, SCOPE_GRANT_PREFIX, Identity
from dragoman.core.daily_usage import DailyUsageQuery
from dragoman.core.errors import InvalidParams, PermissionDenied
from dragoman.core.task.cursors import TaskSearch
from dragoman.core.task.log import TaskRecord
from dragoman.core.task.maintenance import TaskSelection

Built = TypeVar("Built", bound=Message)


def check_present(field: str, text: str) -> None:
    """Raises InvalidParams for an empty field."""
    if not text:
        raise InvalidParams.field(field, "is required")


MAX_REQUEST_ID_LENGTH: Final = 128  # characters of a request id


def check_request_id(request_id: str) -> None:
    """Raises InvalidParams for a request id that is too long."""
    if len(request_id) > MAX_REQUEST_ID_LENGTH:
        rule = f"must have at most {MAX_REQUEST_ID_LENGTH} characters, not {len(request_id)}"
        raise InvalidParams.field("requestId", rule)


def task_selection(request: Any) -> TaskSelection:
    """The tasks with the id of a request, and its agent, principal and scope. Raises InvalidParams without an id."""
    check_present("taskId", request.task_id)
    return TaskSelection(task=request.task_id, agent=request.agent, principal=request.principal, scope=request.scope)


def matches_owner(request: Any, agent: str, principal: str, scope: str) -> bool:
    """Whether a request for tasks of an agent, a principal and a scope includes these; empty fields match any."""
    wanted = (request.agent, agent), (request.principal, principal), (request.scope, scope)
    return all(name in ("", actual) for name, actual in wanted)


def matches_task(request: Any, record: TaskRecord) -> bool:
    """Whether such a request includes a task; its principal is the one that created it."""
    return matches_owner(request, record.agent, record.principal, record.ref.owner.scope)


def page_limit(limit: int, *, default: int, maximum: int) -> int:
    """The number of entries to return; 0 selects the default. Raises InvalidParams."""
    if not 0 <= limit <= maximum:
        raise InvalidParams.field("limit", f"must be 1 to {maximum}, or 0 for {default}")
    return limit or default


def message_from(kind: type[Built], *sources: object, **given: Any) -> Built:
    """A message of the given values. Its other fields have attributes of the same name, of the first source with it.

    A Timestamp is given in milliseconds since 1970; 0 leaves it absent. Raises AttributeError for a field without a
    value, so that a field added to a message is not forgotten.
    """
    fields = kind.DESCRIPTOR.fields_by_name
    values = {name: _attribute(sources, name) for name in fields if name not in given} | given
    times = {name for name, field in fields.items() if field.message_type and field.message_type.name == "Timestamp"}
    message = kind(**{name: value for name, value in values.items() if name not in times})
    for name in times:
        if values[name]:
            getattr(message, name).FromMilliseconds(values[name])
    return message


def _attribute(sources: Iterable[object], name: str) -> Any:
    for source in sources:
        if hasattr(source, name):
            return getattr(source, name)
    raise AttributeError(f"no source has {name}")


Query = TypeVar("Query", TaskSearch, DailyUsageQuery)


def within_grants(identity: Identity, query: Query) -> Query:
    """Returns the query for the scopes and agents of an operator or viewer. Raises PermissionDenied for others."""
    return replace(
        query,
        scopes=allowed_names(identity, SCOPE_GRANT_PREFIX, query.scopes),
        agents=allowed_names(identity, AGENT_GRANT_PREFIX, query.agents),
    )


def allowed_names(identity: Identity, kind: str, wanted: frozenset[str]) -> frozenset[str]:
    """Returns the scopes or agents that a request of an operator or viewer covers; empty for all.

    These are those that it names, else all granted. `kind`: the prefix of the grants. Raises PermissionDenied for names
    outside of the grants.
    """
    granted = identity.granted(kind)
    if granted and (outside := sorted(wanted - granted)):
        raise PermissionDenied(f'your grants do not include "{kind}{outside[0]}"', log_details=identity.log_details)
    return wanted or granted


def narrow_request(request: Message, identity: Identity) -> None:
    """Limits a request on tasks to the scopes and agents in the grants of its operator or viewer.

    Raises PermissionDenied for others, and InvalidParams for a request that does not say which of several it means.
    """
    target = getattr(request, "selection", request)
    for name, kind in (("scope", SCOPE_GRANT_PREFIX), ("agent", AGENT_GRANT_PREFIX)):
        if name not in target.DESCRIPTOR.fields_by_name:
            continue
        named = frozenset(filter(None, (getattr(target, name),)))
        allowed = allowed_names(identity, kind, named)
        if len(allowed) > 1:
            names = ", ".join(sorted(allowed))
            raise InvalidParams.field(name, f"is required, because your grants name several: {names}")
        if allowed:
            setattr(target, name, *allowed)
