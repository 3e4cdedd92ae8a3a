"""The cases of a seed are the same in each run, and have what they are compared for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from tests.transcoders.cases import cases
from tests.transcoders.outcomes import ours
from tests.transcoders.services import NAMES, load

from dragoman_pb.dragoman.ops.v1 import ops_pb2
from dragoman_pb.lf.a2a.v1 import a2a_pb2

SERVED = NAMES[0], NAMES[2]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two of the services, with everything that they import."""
    found: dict[str, descriptor_pb2.FileDescriptorProto] = {}

    def add(file: object) -> None:
        for dependency in file.dependencies:  # type: ignore[attr-defined]
            add(dependency)
        copied = descriptor_pb2.FileDescriptorProto.FromString(file.serialized_pb)  # type: ignore[attr-defined]
        found.setdefault(copied.name, copied)

    add(a2a_pb2.DESCRIPTOR)
    add(ops_pb2.DESCRIPTOR)
    path = tmp_path_factory.mktemp("image") / "image.binpb"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=found.values()).SerializeToString())
    return path


def test_the_same_seed_makes_the_same_cases_and_another_seed_others(image: Path) -> None:
    service = load(image, SERVED)[0]
    lines = [case.line() for case in cases(service, 3, "1")]
    assert len(lines) == 3 * len(service.rules)
    assert lines == [case.line() for case in cases(service, 3, "1")]
    assert lines != [case.line() for case in cases(service, 3, "2")]


def test_cases_without_an_oddity_are_accepted_with_the_method_of_their_rule(image: Path) -> None:
    for service in load(image, SERVED):
        plain = [case for case in cases(service, 40, "1") if not case.oddity]
        assert len(plain) > 20 * len(service.rules)
        for case in plain:
            outcome = ours(service, case)
            assert outcome.method == case.rpc, (case, outcome)


def test_about_half_of_the_cases_have_one_of_many_oddities(image: Path) -> None:
    service = load(image, SERVED)[0]
    oddities = Counter(case.oddity for case in cases(service, 100, "1"))
    assert 0.3 < 1 - oddities[""] / oddities.total() < 0.7
    assert len(oddities) > 60
