"""Who calls an operator's verb, and the word to the audit log about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from dragoman.core.access.identity import Identity
from dragoman.runtime.observe.audit import Auditor
from dragoman_pb import _pool

QUIET: Final = frozenset(("ListAgents", "ListUpstreams", "ListWorkers"))
"""Verbs that tell nothing of anybody's, and that dashboards ask every second."""


@dataclass(frozen=True, slots=True)
class Acting:
    """An operator, while it calls."""

    identity: Identity
    peer: str = ""
    auditor: Auditor | None = None

    async def did(self, verb: str, request: Message, answer: Message | None = None) -> None:
        """Notes what was done, or is about to be told; durable when this returns. Of the request there is what the
        proto does not mark as secret, of the answer only an erasure's receipt."""
        if self.auditor is None or verb in QUIET:
            return
        who = {"principal": self.identity.principal}
        if self.identity.credential_id:
            who["key"] = self.identity.credential_id
        if self.peer:
            who["peer"] = self.peer
        receipt: Any = getattr(answer, "receipt", None)
        about = {"receipt": str(receipt.number), "digest": receipt.digest} if receipt and receipt.number else {}
        await self.auditor.record_operator_action(verb, who, dict(_flat("asked", _said(request))), **about)


def _said(request: Message) -> dict[str, Any]:
    told = type(request)()
    told.CopyFrom(request)
    for field, _ in request.ListFields():
        if field.GetOptions().debug_redact:
            told.ClearField(field.name)
    found: dict[str, Any] = MessageToDict(told, descriptor_pool=_pool.POOL)
    return found


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}", inner)
    elif isinstance(value, list):
        yield name, ", ".join(map(str, value))
    else:
        yield name, str(value)
