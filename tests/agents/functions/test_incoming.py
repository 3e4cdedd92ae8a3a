"""A message of the caller, as an agent function reads it."""

from __future__ import annotations

from dragoman import types
from dragoman.agents.functions.incoming import Incoming
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def incoming(*parts: pb.Part, envelope: pb.SendMessageRequest | None = None) -> Incoming:
    return Incoming(pb.Message(parts=parts), envelope or pb.SendMessageRequest())


def test_texts_are_joined_with_newlines() -> None:
    assert incoming(types.text("one"), types.data({"n": 1}), types.text("two")).text == "one\ntwo"


def test_files_keep_their_order_names_and_types() -> None:
    message = incoming(
        types.file(b"a,b\n", name="t.csv"),
        types.link("https://example.org/x.png", name="x.png", media_type="image/png"),
    )
    assert message.files == [
        types.ReceivedFile("t.csv", "text/csv", b"a,b\n"),
        types.ReceivedFile("x.png", "image/png", url="https://example.org/x.png"),
    ]


def test_integral_numbers_of_data_are_int() -> None:
    (value,) = incoming(types.data({"n": 3, "half": 0.5})).data
    assert (value, type(value["n"])) == ({"n": 3, "half": 0.5}, int)


def test_the_skill_is_named_in_the_metadata_of_the_message() -> None:
    message = pb.Message()
    message.metadata["skill"] = "buy"
    assert Incoming(message, pb.SendMessageRequest()).skill == "buy"
    message.metadata["skill"] = 3
    assert Incoming(message, pb.SendMessageRequest()).skill == ""
    assert incoming().skill == ""
    assert not incoming().message.HasField("metadata")


def test_the_request_of_a_message_is_read() -> None:
    envelope = pb.SendMessageRequest()
    envelope.configuration.accepted_output_modes.append("text/plain")
    envelope.message.extensions.append("https://example.org/extension")
    envelope.metadata.update({"trace": 1})
    message = incoming(envelope=envelope)
    assert (message.accepts, message.extensions, message.request_metadata) == (
        ["text/plain"],
        ["https://example.org/extension"],
        {"trace": 1},
    )
