"""A message of the caller, as an agent function reads it."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dragoman.agents.values import struct_to_json, value_to_json
from dragoman.core.limits.message_limits import media_type_of
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A file of a message: its bytes or its URL. With a URL, `bytes` is empty: nothing is fetched."""

    name: str
    media_type: str
    bytes: builtins.bytes = b""
    url: str = ""


class Incoming:
    """One message of the caller, with the options of its request."""

    def __init__(self, message: pb.Message, envelope: pb.SendMessageRequest) -> None:
        self.message = message
        """The protocol message, `lf.a2a.v1.Message` (A2A 1.0 §4.1.4)."""
        self._envelope = envelope

    @cached_property
    def text(self) -> str:
        """The text parts, joined with newlines. Empty if there are none."""
        return "\n".join([part.text for part in self.message.parts if part.WhichOneof("content") == "text"])

    @cached_property
    def files(self) -> list[ReceivedFile]:
        """The parts with bytes or a URL, in order."""
        return [
            ReceivedFile(part.filename, media_type_of(part), part.raw, part.url)
            for part in self.message.parts
            if part.WhichOneof("content") in ("raw", "url")
        ]

    @cached_property
    def data(self) -> list[Any]:
        """The JSON values of the data parts, in order. Integral numbers are int."""
        return [value_to_json(part.data) for part in self.message.parts if part.WhichOneof("content") == "data"]

    @cached_property
    def skill(self) -> str:
        """The id of the skill that the caller names in the message's metadata, as `skill`. Empty if there is none."""
        return self.message.metadata.fields["skill"].string_value if "skill" in self.message.metadata.fields else ""

    @cached_property
    def request_metadata(self) -> dict[str, Any]:
        """The metadata of the request (1.0 §3.2.1). `message.metadata` is the message's own."""
        return struct_to_json(self._envelope.metadata)

    @cached_property
    def accepts(self) -> list[str]:
        """The media types that the caller accepts. Empty if the request names none."""
        return list(self._envelope.configuration.accepted_output_modes)

    @cached_property
    def extensions(self) -> list[str]:
        """URIs of this agent's extensions that the caller activated (1.0 §4.6)."""
        return list(self._envelope.message.extensions)
