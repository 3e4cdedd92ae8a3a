"""A2A-Version: every unsupported version is rejected, even beside a supported one."""

from __future__ import annotations

import pytest

from dragoman.bindings.pipeline import check_version, event_adapter
from dragoman.core.cards.agent_spec import RESUME_EXTENSION
from dragoman.core.errors import VersionNotSupported
from dragoman.core.task.log import Event
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

RESUME = RESUME_EXTENSION.uri


@pytest.mark.parametrize("values", [[], [""], ["0.3"], ["0.3.0"], [" "], ["0.3", ""], ["0.1"], ["0.2.5"]])
def test_0_x_and_no_version_are_supported(values: list[str]) -> None:
    assert check_version(values) == next((value for value in values if value.strip()), "")


@pytest.mark.parametrize("values", [["1.0"], ["1"], ["1.0.1"], ["1.7"], ["0.3", "1.0"], ["1.0, 0.3"]])
def test_any_1_x_is_supported_and_chosen_among_several(values: list[str]) -> None:
    assert check_version(values).startswith("1")


@pytest.mark.parametrize(
    "values", [["99.0"], ["1.0", "99.0"], ["1.0, 99.0"], ["2.0"], ["0.4"], ["x"], ["10.0"], ["1.0.0.0"]]
)
def test_an_unsupported_version_is_rejected_with_the_supported_ones(values: list[str]) -> None:
    with pytest.raises(VersionNotSupported, match=r"use one of 1\.0, 0\.3") as caught:
        check_version(values)
    assert caught.value.metadata == {"supported": "1.0, 0.3, 0.2, 0.1"}


@pytest.mark.parametrize("uris", [(), (RESUME,)])
def test_an_event_is_adapted_to_what_its_reader_knows(uris: tuple[str, ...]) -> None:
    adapt = event_adapter(uris)
    event = Event(9, pb.StreamResponse(status_update={"task_id": "t"}).SerializeToString(), cursor="a.b.9")
    shown = pb.StreamResponse.FromString(adapt(event).data).status_update
    assert (RESUME in shown.metadata) is (RESUME in uris)
    assert adapt(event) is adapt(event)
