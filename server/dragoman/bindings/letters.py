"""What receivers of push notifications are sent: body and headers in the words of the dialect they were registered in.

| registered in     | told                               | body                                                       |
|-------------------|------------------------------------|------------------------------------------------------------|
| 1.0               | every event                        | StreamResponse (1.0 §4.3.3)                                |
| fasta2a, a2a-rust | every event                        | StreamResponse in their words                              |
| 0.2, 0.3          | the Task, when its state changes   | Task with `kind`, however it was registered (0.3 §9.5)     |
| Google            | the Task, when its state changes   | Task of `a2a.v1` as JSON                                   |
| 0.1               | the Task, when its state changes   | Task                                                       |

Every body is `application/json`: 1.0.1 prefers `application/a2a+json`, for which many frameworks read no body at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import orjson

from dragoman.core.log import Event
from dragoman.core.push import Push
from dragoman.core.webhook import PushConfig
from dragoman.ports import Letter, Signer, Vault
from dragoman.wire import a2a_json, flat_json, protojson, v01_json, v03, v03_json
from dragoman.wire.dialects import Dialect
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

TOKEN: Final = "X-A2A-Notification-Token"
RUST_TOKEN: Final = "a2a-notification-token"

EVENT: Final = "Dragoman-Event"
"""Which event it is: its cursor. A repeat has the same one, and a stream can be taken up after it."""

SIGNATURE: Final = "Dragoman-Signature"
"""That it comes from this server, as a JWT. Who asked for a bearer token and named none finds it there, too."""


@dataclass(frozen=True, slots=True)
class _Form:
    """How one dialect is written to."""

    body: Callable[[pb.StreamResponse], bytes]
    whole: bool = False
    token: str = TOKEN
    place: str = ""
    inline: str = "configuration.taskPushNotificationConfig."


_V1: Final = protojson.compile(pb.StreamResponse, a2a_json.V1)
_FASTA2A: Final = protojson.compile(pb.StreamResponse, flat_json.FASTA2A)
_RUST: Final = protojson.compile(pb.StreamResponse, flat_json.RUST)
_V03: Final = protojson.compile(pb.Task, v03_json.JSON)
_GOOGLE: Final = protojson.compile(v03_pb.Task, a2a_json.V03)

_FORMS: Final = {
    Dialect.V1: _Form(_V1.encode),
    Dialect.FASTA2A: _Form(_FASTA2A.encode),
    Dialect.RUST: _Form(_RUST.encode, token=RUST_TOKEN),
    Dialect.V03: _Form(
        lambda event: _V03.encode(event.task),
        whole=True,
        place="pushNotificationConfig.",
        inline="configuration.pushNotificationConfig.",
    ),
    Dialect.GOOGLE: _Form(
        lambda event: _GOOGLE.encode(v03.write_task(event.task)),
        whole=True,
        place="pushNotificationConfig.",
        inline="configuration.pushNotification.",
    ),
    Dialect.V01: _Form(
        lambda event: orjson.dumps(v01_json.write_task(event.task)),
        whole=True,
        place="pushNotificationConfig.",
        inline="pushNotification.",
    ),
}


class PushLetters:
    """Implements `dragoman.ports.Letters`. Events that several receivers are told in one dialect are written once."""

    def __init__(self, signer: Signer, vault: Vault) -> None:
        self._signer = signer
        self._vault = vault

    def whole(self, dialect: str) -> bool:
        return _FORMS[Dialect(dialect)].whole

    def place(self, dialect: str, *, inline: bool) -> str:
        form = _FORMS[Dialect(dialect)]
        return form.inline if inline else form.place

    def sealed(self, config: PushConfig) -> PushConfig:
        seal, about = self._vault.seal, config.url
        return replace(config, token=seal(config.token, about), credentials=seal(config.credentials, about))

    async def write(self, push: Push, event: Event) -> Letter:
        config = push.config
        form = _FORMS[Dialect(config.dialect)]
        body: bytes | None = event.forms.get(form)
        if body is None:
            body = event.forms[form] = form.body(pb.StreamResponse.FromString(event.data))
        token, credentials = (self._vault.open(kept, config.url) for kept in (config.token, config.credentials))
        signature = await self._signer.sign(config.url, push.task_id, config.id, event.cursor, body)
        headers = {"Content-Type": "application/json", EVENT: event.cursor, SIGNATURE: signature}
        if token:
            headers[form.token] = token
        if config.scheme and credentials:
            headers["Authorization"] = f"{config.scheme} {credentials}"
        elif config.scheme.lower() == "bearer":
            headers["Authorization"] = f"{config.scheme} {signature}"
        return Letter(headers, body)
