"""Generated code is complete, and is part of the wheel, the sdist and the repository."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as v1

ROOT = Path(__file__).resolve().parents[2]
PROTOS = sorted(path.relative_to(ROOT / "proto").as_posix() for path in (ROOT / "proto").rglob("*.proto"))


def build() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]
    return table


def test_every_proto_has_its_generated_modules() -> None:
    for proto in PROTOS:
        stem = ROOT / "gen/dragoman_pb" / proto.removesuffix(".proto")
        # Protos without a service have no gRPC module.
        calls = ("_pb2_grpc.py", "_pb2_grpc.pyi") if "\nservice " in (ROOT / "proto" / proto).read_text() else ()
        for ending in ("_pb2.py", "_pb2.pyi", *calls):
            assert stem.with_name(stem.name + ending).is_file(), f"{proto}: no {stem.name}{ending}; make proto"


def test_the_wheel_contains_the_generated_code_the_protos_and_the_image() -> None:
    wheel = build()["targets"]["wheel"]

    assert "gen/dragoman_pb" in wheel["packages"]
    assert wheel["force-include"] == {
        "proto/a2a": "dragoman_pb/proto/a2a",
        "proto/dragoman": "dragoman_pb/proto/dragoman",
        "proto/lf": "dragoman_pb/proto/lf",
        "gen/dragoman.binpb": "dragoman_pb/dragoman.binpb",
        "gen/openapi": "dragoman_pb/openapi",
    }
    assert all((ROOT / source).exists() for source in (*wheel["packages"], *wheel["force-include"]))


def test_the_sdist_contains_the_sources_of_the_wheel() -> None:
    assert {"/server", "/gen", "/proto"} <= set(build()["targets"]["sdist"]["include"])


def test_git_does_not_ignore_the_generated_code() -> None:
    # hatchling silently omits files that git ignores
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()

    assert not {line.strip("/") for line in ignored} & {"gen", "gen/dragoman_pb", "proto"}


def test_the_image_contains_our_protos_and_their_imports() -> None:
    image = FileDescriptorSet.FromString((ROOT / "gen/dragoman.binpb").read_bytes())
    files = {file.name: file for file in image.file}

    assert set(PROTOS) <= files.keys()
    assert {dependency for file in image.file for dependency in file.dependency} <= files.keys()
    for module in (v03, v1):
        assert files[module.DESCRIPTOR.name].package == module.DESCRIPTOR.package
        assert files[module.DESCRIPTOR.name].source_code_info.location, "the image has lost the comments"


def test_every_element_of_the_protos_is_documented() -> None:
    image = FileDescriptorSet.FromString((ROOT / "gen/dragoman.binpb").read_bytes())

    bare = [
        f"{file.name}:{location.span[0] + 1}"
        for file in image.file
        if file.name in PROTOS
        for location in file.source_code_info.location
        if is_element(list(location.path)) and not location.leading_comments.strip()
    ]

    assert bare == []


def is_element(path: list[int]) -> bool:
    """Whether the path is that of a message, field, oneof, enum, enum value, service or method.

    Numbers are those of google.protobuf.FileDescriptorProto and below: 4 message, 5 enum, 6 service;
    in a message 2 field and 8 oneof, in an enum 2 value, in a service 2 method.
    """
    if len(path) == 2:
        return path[0] in (4, 5, 6)
    if len(path) == 4:
        return (path[0], path[2]) in {(4, 2), (4, 8), (5, 2), (6, 2)}
    return False
