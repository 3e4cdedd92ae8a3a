"""The services whose rules are compared, from the image that `build` makes. Their order is that of go/main.go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from dragoman.transcoding import Rule, ServiceRoutes, rules

NAMES: Final = (
    "lf.a2a.v1.A2AService",
    "a2a.v1.A2AService",
    "dragoman.ops.v1.OpsService",
    "examples.library.v1.Library",
    "judge.v1.JudgeService",
)


@dataclass(frozen=True)
class Service:
    """One service with our transcoder for it."""

    index: int
    descriptor: ServiceDescriptor
    routes: ServiceRoutes
    requests: dict[str, type[Any]]
    """Request classes by gRPC path."""

    @property
    def name(self) -> str:
        """The full name."""
        return self.descriptor.full_name

    @property
    def rules(self) -> Sequence[tuple[MethodDescriptor, Rule]]:
        """All rules with their methods, in declared order."""
        return rules(self.descriptor)


def load(image: Path, names: Sequence[str] = NAMES) -> list[Service]:
    """Reads the services from a FileDescriptorSet."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(image.read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())
    found = []
    for index, name in enumerate(names):
        descriptor = pool.FindServiceByName(name)
        requests = {f"/{name}/{method.name}": GetMessageClass(method.input_type) for method in descriptor.methods}
        found.append(Service(index, descriptor, ServiceRoutes(descriptor), requests))
    return found
