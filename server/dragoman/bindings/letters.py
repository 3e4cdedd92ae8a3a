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

from dragoman.core.push.configuration import PushConfig
from dragoman.core.push.delivery import PushRecord
from dragoman.core.task.log import Event
from dragoman.ports import SecretBox, WebhookRequest, WebhookRequestSigner
from dragoman.wire.dialects import Dialect, json_mixed, json_proto, json_v01, json_v03, v03
from dragoman.wire.json import protojson
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


_V1: Final = protojson.compile(pb.StreamResponse, json_proto.PROTOJSON_V1)
_FASTA2A: Final = protojson.compile(pb.StreamResponse, json_mixed.JSON_FASTA2A)
_RUST: Final = protojson.compile(pb.StreamResponse, json_mixed.JSON_RUST)
_V03: Final = protojson.compile(pb.Task, json_v03.JSON_V03)
_GOOGLE: Final = protojson.compile(v03_pb.Task, json_proto.PROTOJSON_V03)

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
        lambda event: orjson.dumps(json_v01.write_task(event.task)),
        whole=True,
        place="pushNotificationConfig.",
        inline="pushNotification.",
    ),
}


class PushLetters:
    """Implements `dragoman.ports.Letters`. Events that several receivers are told in one dialect are written once."""

    def __init__(self, signer: WebhookRequestSigner, vault: SecretBox) -> None:
        self._signer = signer
        self._vault = vault

    def sends_task(self, dialect: str) -> bool:
        return _FORMS[Dialect(dialect)].whole

    def field_prefix(self, dialect: str, *, inline: bool) -> str:
        form = _FORMS[Dialect(dialect)]
        return form.inline if inline else form.place

    def encrypt_secrets(self, config: PushConfig) -> PushConfig:
        seal, about = self._vault.encrypt, config.url
        return replace(config, token=seal(config.token, about), credentials=seal(config.credentials, about))

    async def encode(self, push: PushRecord, event: Event) -> WebhookRequest:
        config = push.config
        form = _FORMS[Dialect(config.dialect)]
        body: bytes | None = event.encodings.get(form)
        if body is None:
            body = event.encodings[form] = form.body(pb.StreamResponse.FromString(event.data))
        token, credentials = (self._vault.decrypt(kept, config.url) for kept in (config.token, config.credentials))
        signature = await self._signer.sign(config.url, push.task_id, config.id, event.cursor, body)
        headers = {"Content-Type": "application/json", EVENT: event.cursor, SIGNATURE: signature}
        if token:
            headers[form.token] = token
        if config.scheme and credentials:
            headers["Authorization"] = f"{config.scheme} {credentials}"
        elif config.scheme.lower() == "bearer":
            headers["Authorization"] = f"{config.scheme} {signature}"
        return WebhookRequest(headers, body)
