"""Extracts facts about both A2A proto packages from the descriptors of an installed a2a-sdk.

Facts are names, numbers, types, labels, JSON names, required fields and the first HTTP rule of each method; no
comments. Runs in an environment with a2a-sdk, which the project's own environment does not have:

    python tools/extract_reference.py tests/proto/reference            # write
    python tools/extract_reference.py tests/proto/reference --check    # compare
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any, TypeAlias

from google.api import annotations_pb2, client_pb2, field_behavior_pb2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
)

Facts: TypeAlias = dict[str, dict[str, Any]]

# Output file: the modules that contain the package, in a2a-sdk 1.x and in 0.3.x.
SOURCES = {
    "a2a_v1.json": ("a2a.compat.v0_3.a2a_v0_3_pb2", "a2a.grpc.a2a_pb2"),
    "lf_a2a_v1.json": ("a2a.types.a2a_pb2",),
}


def field_facts(field: FieldDescriptorProto, owner: DescriptorProto) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "number": field.number,
        "type": field.type_name.removeprefix(".") or FieldDescriptorProto.Type.Name(field.type),
        "label": FieldDescriptorProto.Label.Name(field.label),
        "json_name": field.json_name,
    }
    if field.proto3_optional:
        facts["optional"] = True
    elif field.HasField("oneof_index"):
        facts["oneof"] = owner.oneof_decl[field.oneof_index].name
    if field_behavior_pb2.REQUIRED in field.options.Extensions[field_behavior_pb2.field_behavior]:
        facts["required"] = True
    return facts


def method_facts(method: MethodDescriptorProto) -> dict[str, Any]:
    rule = method.options.Extensions[annotations_pb2.http]
    verb = rule.WhichOneof("pattern")
    assert verb is not None, f"{method.name} has no HTTP rule"
    return {
        "input": method.input_type.removeprefix("."),
        "output": method.output_type.removeprefix("."),
        "client_streaming": method.client_streaming,
        "server_streaming": method.server_streaming,
        "http": f"{verb.upper()} {getattr(rule, verb)}",
        "http_body": rule.body,
        "signatures": list(method.options.Extensions[client_pb2.method_signature]),
    }


def message_facts(message: DescriptorProto, prefix: str, into: Facts) -> None:
    name = f"{prefix}.{message.name}"
    into[name] = {"map_entry": True} if message.options.map_entry else {}
    for field in message.field:
        into[f"{name}.{field.name}"] = field_facts(field, message)
    for nested in message.nested_type:
        message_facts(nested, name, into)


def file_facts(file: FileDescriptorProto) -> Facts:
    """Returns every message, field, enum, value, service and method of a file, by full name."""
    facts: Facts = {}
    for message in file.message_type:
        message_facts(message, file.package, facts)
    for enum in file.enum_type:
        facts[f"{file.package}.{enum.name}"] = {}
        for value in enum.value:
            facts[f"{file.package}.{enum.name}.{value.name}"] = {"number": value.number}
    for service in file.service:
        facts[f"{file.package}.{service.name}"] = {}
        for method in service.method:
            facts[f"{file.package}.{service.name}.{method.name}"] = method_facts(method)
    return facts


def render(facts: Facts) -> str:
    """One fact per line, sorted, for readable diffs."""
    lines = (f"  {json.dumps(name)}: {json.dumps(facts[name])}" for name in sorted(facts))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def extract(modules: tuple[str, ...]) -> tuple[str, Facts] | None:
    """Returns the first installed module and its facts."""
    for module in modules:
        try:
            serialized: bytes = importlib.import_module(module).DESCRIPTOR.serialized_pb
        except ModuleNotFoundError:
            continue
        return module, file_facts(FileDescriptorProto.FromString(serialized))
    return None


def differences(published: Facts, recorded: Facts) -> list[str]:
    return [
        f"{name}: published {published.get(name)}, recorded {recorded.get(name)}"
        for name in sorted(published.keys() | recorded.keys())
        if published.get(name) != recorded.get(name)
    ]


def main(arguments: list[str]) -> int:
    folders = [argument for argument in arguments if not argument.startswith("--")]
    if len(folders) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    found = {name: extracted for name, modules in SOURCES.items() if (extracted := extract(modules))}
    if not found:
        print("extract_reference: no a2a-sdk in this environment", file=sys.stderr)
        return 2
    failed = False
    for name, (module, published) in found.items():
        path = Path(folders[0], name)
        if "--check" not in arguments:
            path.write_text(render(published), "utf-8")
            continue
        differing = differences(published, json.loads(path.read_text("utf-8")))
        print(f"{module}: {len(published)} facts, {len(differing)} differ from {name}")
        print("".join(f"  {line}\n" for line in differing), end="")
        failed = failed or bool(differing)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
