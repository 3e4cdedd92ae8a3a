"""Validation of push configurations: errors name the field, and header values are safe."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.errors import InvalidParams
from dragoman.core.push.configuration import (
    MAX_WEBHOOK_SECRET_LENGTH,
    MAX_WEBHOOK_URL_LENGTH,
    PushConfig,
    check_push_config,
    check_push_config_id,
    describe_scheme,
    scheme_description,
)

GOOD = PushConfig(id="c", url="https://hook.example/a", token="t 1", scheme="Bearer", credentials="a.b-c=")


def test_a_valid_configuration_passes() -> None:
    check_push_config(GOOD)
    check_push_config(PushConfig(id="c", url="http://x"))


def test_a_described_scheme_is_sent_as_its_name() -> None:
    described = {"bearerFormat": "JWT", "description": "two\nlines, and a comma"}
    config = replace(GOOD, scheme=describe_scheme("bearer", described))
    check_push_config(config, described=True)
    assert config.preferred_scheme == "bearer"
    assert scheme_description(config.scheme) == ("bearer", described)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"url": ""}, "url"),
        ({"url": "https://x/" + "a" * MAX_WEBHOOK_URL_LENGTH}, "url"),
        ({"token": "a\r\nX-Evil: 1"}, "token"),
        ({"token": "a\n"}, "token"),
        ({"token": " a"}, "token"),
        ({"token": "é"}, "token"),
        ({"token": "a\0"}, "token"),
        ({"token": "t" * (MAX_WEBHOOK_SECRET_LENGTH + 1)}, "token"),
        ({"credentials": "x\ry"}, "authentication.credentials"),
        ({"credentials": "c" * (MAX_WEBHOOK_SECRET_LENGTH + 1)}, "authentication.credentials"),
        ({"scheme": "Bearer x"}, "authentication.scheme"),
        ({"scheme": "Bearer:"}, "authentication.scheme"),
        ({"scheme": "Bearer\nX-Evil: 1"}, "authentication.scheme"),
        ({"scheme": 'Bearer\n{"X-Evil": "1"}'}, "authentication.scheme"),
        ({"scheme": "X Evil\n{}"}, "authentication.scheme"),
        ({"scheme": '\n{"description": "of no scheme"}'}, "authentication.scheme"),
        ({"scheme": "x" * 600}, "authentication.scheme"),
    ],
)
def test_an_invalid_configuration_is_rejected_with_the_field(change: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        check_push_config(replace(GOOD, **change), "configuration.")
    (violation,) = refused.value.violations
    assert violation.field == f"configuration.{field}"
    for secret in (GOOD.token, GOOD.credentials, "X-Evil"):
        assert secret not in refused.value.message


def test_a_description_has_a_limit_and_is_none_of_a_caller() -> None:
    config = replace(GOOD, scheme=describe_scheme("Bearer", {"description": "short"}))
    check_push_config(config, described=True)
    with pytest.raises(InvalidParams, match=r"^authentication\.scheme: must be an HTTP authentication scheme"):
        check_push_config(config)
    long = replace(GOOD, scheme=describe_scheme("Bearer", {"description": "x" * 5000}))
    with pytest.raises(InvalidParams, match=r"^authentication: bearerFormat and description must have at most 4096"):
        check_push_config(long, described=True)


@given(st.text())
def test_no_accepted_secret_can_end_a_header(text: str) -> None:
    try:
        check_push_config(replace(GOOD, token=text, credentials=text))
    except InvalidParams:
        return
    assert text.isascii()
    assert text.isprintable()
    assert text == text.strip()


@pytest.mark.parametrize("id", ["", "a/b", "a\nb", "x" * 513])
def test_an_id_must_fit_into_a_path(id: str) -> None:
    with pytest.raises(InvalidParams, match="id: must be 1 to 512"):
        check_push_config_id(id)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Hook.Example/a?b#c", "hook.example:443"),
        ("http://hook.example:8080", "hook.example:8080"),
        ("http://hook.example", "hook.example:80"),
        ("http://[::1]:90/", "::1:90"),
        ("http://[", ""),
        ("http://x:999999/", ""),
        ("", ":443"),
    ],
)
def test_the_host_key_is_host_and_port(url: str, host: str) -> None:
    assert PushConfig(id="1", url=url).host == host
