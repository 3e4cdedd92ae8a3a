"""protoc plugin: messages, type stubs and gRPC code as one relocatable package tree.

buf passes a CodeGeneratorRequest on stdin. The plugin runs protoc and grpc_python from grpcio-tools in this process
and mypy-protobuf for the gRPC stubs, then makes all imports between generated files relative, so that the tree works
under any parent package. Options: `pool=private` registers the files in a DescriptorPool of the tree (<tree>/_pool.py);
`mypy_grpc` also writes *_pb2_grpc.pyi; `star=PACKAGE` lets that package export the messages of all its files. It needs
`strategy: all`, since it writes the __init__.py files.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path, PurePosixPath

from google.protobuf.compiler import plugin_pb2
from google.protobuf.descriptor_pb2 import Edition, FileDescriptorSet
from grpc_tools import protoc

POOL = '''\
"""A DescriptorPool of this package's own, so that its proto packages can live in one process with
another library that registers the same names in the default pool."""

from google.protobuf import descriptor_pb2 as _descriptor_pb2
from google.protobuf import descriptor_pool as _descriptor_pool
from google.protobuf import message_factory as _message_factory

_DEFAULT = _descriptor_pool.Default()

POOL = _descriptor_pool.DescriptorPool()
_known = set()


def adopt(file):
    """Copy one file of the default pool (its name or its DESCRIPTOR), and what it imports, into POOL."""
    name = getattr(file, "name", file)
    if name not in _known:
        add(_DEFAULT.FindFileByName(name).serialized_pb)


def add(serialized):
    """Add one serialized FileDescriptorProto to POOL; what it imports comes out of the default pool."""
    proto = _descriptor_pb2.FileDescriptorProto.FromString(serialized)
    for dependency in proto.dependency:
        adopt(dependency)
    _known.add(proto.name)
    return POOL.AddSerializedFile(serialized)


def message_class(full_name):
    """The class of POOL for a message, for example google.protobuf.Timestamp."""
    return _message_factory.GetMessageClass(POOL.FindMessageTypeByName(full_name))


class _Shim:
    AddSerializedFile = staticmethod(add)


def Default():
    """What generated code calls instead of the default pool."""
    return _Shim
'''


def module_of(proto: str) -> str:
    return proto.removesuffix(".proto").replace("-", "_").replace("/", ".") + "_pb2"


def relocate(path: PurePosixPath, text: str, local: set[str], private: bool) -> str:
    """Returns the text with relative imports of `local` modules and, if private, the tree's own pool."""
    up = "." * len(path.parts)  # from the file's package to the root of the tree

    def package_import(match: re.Match[str]) -> str:  # from a.b import c_pb2 as x
        known = f"{match[1]}.{match[2]}" in local
        return f"from {up}{match[1]} import {match[2]}" if known else match[0]

    def root_import(match: re.Match[str]) -> str:  # import c_pb2 as x
        return f"from {up} import {match[1]}" if match[1] in local else match[0]

    def star_import(match: re.Match[str]) -> str:  # from a.b.c_pb2 import *
        return f"from {up}{match[1]} import" if match[1] in local else match[0]

    text = re.sub(r"^from ([\w.]+) import (\w+_pb2)\b", package_import, text, flags=re.M)
    text = re.sub(r"^import (\w+_pb2)\b", root_import, text, flags=re.M)
    text = re.sub(r"^from ([\w.]+_pb2) import", star_import, text, flags=re.M)
    if path.name.endswith("_pb2.py"):
        # Without this __module__ is wrong, and messages do not pickle.
        text, count = re.subn(r"(BuildTopDescriptorsAndMessages\(DESCRIPTOR, )'[\w.]+'", r"\1__name__", text)
        assert count == 1, path
        if private:
            text, count = re.subn(
                r"^from google\.protobuf import descriptor_pool as _descriptor_pool$",
                f"from {up} import _pool as _descriptor_pool",
                text,
                flags=re.M,
            )
            assert count == 1, path
    return text


def run_protoc(request: plugin_pb2.CodeGeneratorRequest, names: list[str]) -> dict[str, str]:
    """Returns the output of protoc's Python generators and of grpc_python for the files `names`."""
    with tempfile.TemporaryDirectory() as tmp:
        out = Path(tmp, "out")
        out.mkdir()
        descriptors = Path(tmp, "set.binpb")
        descriptors.write_bytes(FileDescriptorSet(file=request.proto_file).SerializeToString())
        code = protoc.main(
            [
                "protoc",
                f"--descriptor_set_in={descriptors}",
                f"--python_out={out}",
                f"--pyi_out={out}",
                f"--grpc_python_out={out}",
                *names,
            ]
        )
        if code:
            raise SystemExit(f"grpc_tools.protoc: exit status {code}")
        return {path.relative_to(out).as_posix(): path.read_text("utf-8") for path in sorted(out.rglob("*.py*"))}


def run_mypy_grpc(request: plugin_pb2.CodeGeneratorRequest) -> dict[str, str]:
    """Returns mypy-protobuf's type stubs of the gRPC code."""
    inner = plugin_pb2.CodeGeneratorRequest()
    inner.CopyFrom(request)
    inner.parameter = "quiet"
    done = subprocess.run(
        [sys.executable, "-c", "from mypy_protobuf.main import grpc; grpc()"],
        input=inner.SerializeToString(),
        stdout=subprocess.PIPE,
        check=True,
    )
    response = plugin_pb2.CodeGeneratorResponse.FromString(done.stdout)
    return {generated.name: generated.content for generated in response.file}


def generate(request: plugin_pb2.CodeGeneratorRequest) -> dict[str, str]:
    """Returns the complete tree: path to text."""
    options = {key: value for key, _, value in (o.partition("=") for o in request.parameter.split(",") if o)}
    private = options.get("pool", "default") == "private"
    names = list(request.file_to_generate)
    local = {module_of(name) for name in names}
    files = run_protoc(request, names)
    services = {file.name for file in request.proto_file if file.service}
    for name in names:  # grpc_python writes an empty module for a file without services
        if name not in services:
            files.pop(module_of(name).replace(".", "/") + "_grpc.py", None)
    if "mypy_grpc" in options:
        files |= run_mypy_grpc(request)
    files = {name: relocate(PurePosixPath(name), text, local, private) for name, text in files.items()}
    for name in list(files):
        for parent in PurePosixPath(name).parents:
            files.setdefault((parent / "__init__.py").as_posix(), "")
    if "star" in options:
        package = options["star"].replace(".", "/")
        modules = sorted(PurePosixPath(name).stem for name in files if re.fullmatch(rf"{package}/\w+_pb2\.py", name))
        files[f"{package}/__init__.py"] = "".join(f"from .{module} import *\n" for module in modules)
    files["py.typed"] = ""
    if private:
        files["_pool.py"] = POOL
    return files


def main() -> None:
    request = plugin_pb2.CodeGeneratorRequest.FromString(sys.stdin.buffer.read())
    response = plugin_pb2.CodeGeneratorResponse(
        supported_features=plugin_pb2.CodeGeneratorResponse.FEATURE_PROTO3_OPTIONAL
        | plugin_pb2.CodeGeneratorResponse.FEATURE_SUPPORTS_EDITIONS,
        minimum_edition=Edition.EDITION_PROTO2,
        maximum_edition=Edition.EDITION_2023,
    )
    for name, content in sorted(generate(request).items()):
        response.file.add(name=name, content=content)
    sys.stdout.buffer.write(response.SerializeToString())


if __name__ == "__main__":
    main()
