"""What the caller sent, read: text, files and data of one message."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dragoman.agents.plain import read, read_object
from dragoman.core.messages import media_type_of
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@dataclass(frozen=True, slots=True)
class File:
    """A file of a message: its bytes, or the URL where they are (then `bytes` is empty and nothing was fetched)."""

    name: str
    media_type: str
    bytes: builtins.bytes = b""
    url: str = ""


class Incoming:
    """One message of the caller, and what its request said about the answer."""

    def __init__(self, message: pb.Message, envelope: pb.SendMessageRequest) -> None:
        self.message = message
        """The message itself, `lf.a2a.v1.Message` (A2A 1.0 §4.1.4)."""
        self._envelope = envelope

    @cached_property
    def text(self) -> str:
        """Its text parts, one under the other; empty when there is none."""
        return "\n".join([part.text for part in self.message.parts if part.WhichOneof("content") == "text"])

    @cached_property
    def files(self) -> list[File]:
        """Its parts with bytes or a URL, in order."""
        return [
            File(part.filename, media_type_of(part), part.raw, part.url)
            for part in self.message.parts
            if part.WhichOneof("content") in ("raw", "url")
        ]

    @cached_property
    def data(self) -> list[Any]:
        """The JSON of its data parts, in order. Numbers without a fraction are int."""
        return [read(part.data) for part in self.message.parts if part.WhichOneof("content") == "data"]

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the request it came in (1.0 §3.2.1); the message's own is `message.metadata`."""
        return read_object(self._envelope.metadata)

    @cached_property
    def accepts(self) -> list[str]:
        """The media types the caller accepts in answer; empty when it did not say."""
        return list(self._envelope.configuration.accepted_output_modes)

    @cached_property
    def extensions(self) -> list[str]:
        """The URIs of this agent's extensions that the caller activated (1.0 §4.6)."""
        return list(self._envelope.message.extensions)
