"""The A2A operations, the same for every binding (1.0 §3.1): one class for each kind.

Requests are `lf.a2a.v1` messages, responses are serialized ones: the 1.0 gRPC binding passes the bytes on untouched,
every other dialect decodes them. All operations raise subclasses of core.errors.A2AError.
"""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.runtime.access import Access, Admission
from dragoman.runtime.operations.cancel import CancelOperation
from dragoman.runtime.operations.push_configs import PushConfigOperations
from dragoman.runtime.operations.read import ReadOperations, SubscribeOperation
from dragoman.runtime.operations.send import SendOperations


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations that bindings call, in this order: `admission`, `access`, then an operation."""

    admission: Admission
    access: Access
    send: SendOperations
    read: ReadOperations
    subscribe: SubscribeOperation
    cancel: CancelOperation
    push_configs: PushConfigOperations
