"""DRAFT of A2A 1.1: the messages of `lf.a2a.v1` with five more fields, for callers that name this version.

The draft is the branch `dev-1.1` of the specification at 28491879 of 2026-08-12. Its service, paths and JSON are those
of 1.0, whose generated code stays as published: the messages of the draft are built here, from the descriptors of 1.0
and FIELDS, in a pool of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dragoman.core.task.generations import GenerationTerms
from dragoman.wire.dialects.json_proto import PROTOJSON_V1
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

VERSION: Final = "1.1"
"""The `A2A-Version` of its callers."""

FIELDS: Final[Mapping[str, tuple[int, bool]]] = {
    "Task.generation": (7, False),
    "TaskStatusUpdateEvent.generation": (5, False),
    "TaskArtifactUpdateEvent.generation": (7, False),
    "GetTaskRequest.current_generation": (4, True),
    "SendMessageConfiguration.if_generation_match": (5, True),
}
"""What the draft adds: number, and whether absence differs from zero. All are int64."""

PROTOJSON: Final = replace(PROTOJSON_V1, name="lf.a2a.v1, draft of 1.1")
"""The JSON of 1.0 for messages of the draft. A dialect of its own: codecs are found by the name of the message."""


def file_proto() -> FileDescriptorProto:
    """The draft's proto file: that of 1.0 with FIELDS."""
    file = FileDescriptorProto.FromString(pb.DESCRIPTOR.serialized_pb)
    messages = {message.name: message for message in file.message_type}
    for path, (number, optional) in FIELDS.items():
        owner, _, name = path.partition(".")
        message = messages[owner]
        field = message.field.add(
            name=name,
            json_name=_json_name(name),
            number=number,
            type=FieldDescriptorProto.TYPE_INT64,
            label=FieldDescriptorProto.LABEL_OPTIONAL,
        )
        if optional:  # protoc makes a oneof of its own for each
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")
    return file


def _json_name(name: str) -> str:
    """The JSON name that protoc gives a field."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


@cache
def _file() -> FileDescriptor:
    pool, known = DescriptorPool(), set()

    def add(file: FileDescriptor) -> None:
        if file.name not in known:
            known.add(file.name)
            for dependency in file.dependencies:
                add(dependency)
            pool.AddSerializedFile(file.serialized_pb)

    for dependency in pb.DESCRIPTOR.dependencies:
        add(dependency)
    file = file_proto()
    pool.Add(file)
    return pool.FindFileByName(file.name)


def message_class(v1_class: type[Message]) -> type[Message]:
    """The draft's class for a message of 1.0; the class itself if it is of another package, such as Empty."""
    descriptor = _file().message_types_by_name.get(v1_class.DESCRIPTOR.name)
    if v1_class.DESCRIPTOR.file.package != pb.DESCRIPTOR.package or descriptor is None:
        return v1_class
    return GetMessageClass(descriptor)


def to_v1(request: Any) -> tuple[Any, GenerationTerms]:
    """The request of 1.0 that a request of the draft contains, and what it says about generations."""
    v1_class: type[Message] = getattr(pb, request.DESCRIPTOR.name)
    current = if_match = None
    if v1_class is pb.GetTaskRequest and request.HasField("current_generation"):
        current = request.current_generation
        request.ClearField("current_generation")
    if v1_class is pb.SendMessageRequest and request.configuration.HasField("if_generation_match"):
        if_match = request.configuration.if_generation_match
        request.configuration.ClearField("if_generation_match")
    return v1_class.FromString(request.SerializeToString()), GenerationTerms(current, if_match)
