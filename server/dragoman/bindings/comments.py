"""What the protos say in words: the comments of their sources, as the image `dragoman.binpb` keeps them.

Generated code has no comments, so the image that downstream generators use is read a second time, once and only
when somebody asks for the description.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Final

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet

_PACKAGES: Final = ("a2a.v1", "lf.a2a.v1")

# Numbers of fields in descriptor.proto, of which a location's path is made.
_MESSAGES, _ENUMS, _SERVICES = 4, 5, 6
_FIELDS, _NESTED, _NESTED_ENUMS = 2, 3, 4
_METHODS = _VALUES = 2


@cache
def comments() -> Mapping[str, str]:
    """Comments of our packages by full name; none where the installation has no image."""
    package = files("dragoman_pb")
    for place in (package / "dragoman.binpb", package / ".." / "dragoman.binpb"):  # a wheel, a source tree
        if place.is_file():
            return read(place.read_bytes())
    return {}


def read(image: bytes) -> dict[str, str]:
    """The comments in a serialized FileDescriptorSet."""
    found: dict[str, str] = {}
    for file in FileDescriptorSet.FromString(image).file:
        if file.package in _PACKAGES:
            texts = {
                tuple(location.path): location.leading_comments
                for location in file.source_code_info.location
                if location.leading_comments
            }
            found |= {f"{file.package}.{name}": _plain(texts[path]) for name, path in _names(file) if path in texts}
    return found


_Named = Iterator[tuple[str, tuple[int, ...]]]


def _names(file: FileDescriptorProto) -> _Named:
    """Every name of a file with the path of its location."""
    for at, service in enumerate(file.service):
        yield service.name, (_SERVICES, at)
        for number, method in enumerate(service.method):
            yield f"{service.name}.{method.name}", (_SERVICES, at, _METHODS, number)
    yield from _enums(file.enum_type, "", (_ENUMS,))
    yield from _messages(file.message_type, "", (_MESSAGES,))


def _messages(messages: Iterable[DescriptorProto], before: str, path: Sequence[int]) -> _Named:
    for at, message in enumerate(messages):
        name, here = before + message.name, (*path, at)
        yield name, here
        for number, field in enumerate(message.field):
            yield f"{name}.{field.name}", (*here, _FIELDS, number)
        yield from _messages(message.nested_type, f"{name}.", (*here, _NESTED))
        yield from _enums(message.enum_type, f"{name}.", (*here, _NESTED_ENUMS))


def _enums(enums: Iterable[EnumDescriptorProto], before: str, path: Sequence[int]) -> _Named:
    for at, enum in enumerate(enums):
        yield before + enum.name, (*path, at)
        for number, value in enumerate(enum.value):
            yield before + value.name, (*path, at, _VALUES, number)  # values are their enum's neighbours


def _plain(comment: str) -> str:
    return "\n".join(line.removeprefix(" ").rstrip() for line in comment.splitlines()).strip()
