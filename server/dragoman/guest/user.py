"""Who calls, as a2a-sdk of 0.3 and of 1.x wants to be told."""

from __future__ import annotations

from a2a.auth.user import UnauthenticatedUser, User

from .turn import Turn


def user(turn: Turn) -> User:
    """The principal of a turn's message."""
    name = turn.start.get("principal", "")
    return _Caller(name) if name and name != "anonymous" else UnauthenticatedUser()


class _Caller(User):
    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return self._name
