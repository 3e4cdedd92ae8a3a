"""Each difference has one reason, and each reason a difference."""

from __future__ import annotations

from tests.transcoders.outcomes import Difference
from tests.transcoders.reasons import FILE, Reasons, row

TEXT = """
[[reason]]
text = "an id is never empty"
rows = ["*: empty id: 404 / accepted", "Envoy: no id, *: 404 / 200"]
[[reason]]
text = "nobody does this"
rows = ["Envoy: nothing: 1 / 2"]
"""


def test_differences_are_counted_below_their_reason() -> None:
    reasons = Reasons(TEXT)
    for gateway, subject, there in (("Envoy", "empty id", "accepted"), ("Envoy", "no id, in a list", "200")):
        assert reasons.count(gateway, Difference(subject, "404", there))
    assert reasons.count("other", Difference("empty id", "404", "accepted"))
    assert [sum(reason.found.values()) for reason in reasons] == [3, 0]
    assert reasons.stale() == ["nobody does this"]
    assert reasons.unexplained == {}


def test_a_difference_without_a_reason_is_unexplained() -> None:
    reasons = Reasons(TEXT)
    assert not reasons.count("other", Difference("no id, in a list", "404", "200"))
    assert list(reasons.unexplained) == [row("other", Difference("no id, in a list", "404", "200"))]


def test_every_row_names_a_gateway_a_subject_and_two_sides() -> None:
    for reason in Reasons(FILE.read_text("utf-8")):
        for pattern in reason.rows:
            gateway, _, rest = pattern.partition(": ")
            subject, _, sides = rest.rpartition(": ")
            assert gateway in ("*", "Envoy", "grpc-gateway"), pattern
            assert subject, pattern
            assert sides.count(" / ") == 1, pattern
