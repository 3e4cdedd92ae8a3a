"""`dragoman.transcoding`: no A2A in its modules, documented names, and `google.rpc.Status` over HTTP (AIP-193)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import orjson
import pytest
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from tests.test_layers import PACKAGE
from tests.test_layers import imports as package_imports

from dragoman import transcoding
from dragoman.core.errors import InvalidParams, ParseError

ALLOWED_FOLDERS: Final = {"transcoding", "wire", "core"}


def required_sources() -> set[Path]:
    """The public module, and every module of the package that it imports, directly or not."""
    targets_by_file: dict[str, set[str]] = {}
    for use in package_imports(PACKAGE):
        targets_by_file.setdefault(use.file, set()).add(use.target)
    pending, seen = ["transcoding.py"], set()
    while pending:
        file = pending.pop()
        seen.add(PACKAGE / file)
        for target in targets_by_file.get(file, ()):
            assert not target.startswith("dragoman_pb"), f"{file} imports {target}"
            if not target.startswith("dragoman."):
                continue
            path = target.split(".")[1:]
            # `from dragoman.wire import sse` is listed as the package: the modules are in the text.
            module = f"{'/'.join(path)}.py"
            files = [module] if (PACKAGE / module).exists() else _imported_modules(file, path)
            pending += [name for name in files if PACKAGE / name not in seen]
    return seen


def _imported_modules(file: str, package: list[str]) -> list[str]:
    text = (PACKAGE / file).read_text("utf-8")
    matches = re.findall(rf"^from dragoman\.{'.'.join(package)} import (.+)$", text, re.MULTILINE)
    return [f"{'/'.join(package)}/{name.strip()}.py" for line in matches for name in line.split(",")]


def test_its_modules_contain_no_a2a() -> None:
    sources = required_sources()
    names = {path.name for path in sources}
    assert names >= {"httprule.py", "transcode.py", "protojson.py", "wellknown.py", "sse.py"}
    for path in sources:
        place = path.relative_to(PACKAGE)
        assert place.parts[0].removesuffix(".py") in ALLOWED_FOLDERS, place
        if place.parts[0] == "wire":
            assert not re.search(r"a2a|\btask", path.read_text("utf-8"), re.IGNORECASE), f"{place} mentions A2A"


def test_every_public_name_exists_and_is_documented() -> None:
    for name in transcoding.__all__:
        value = getattr(transcoding, name)
        assert not callable(value) or value.__doc__, name
        assert f"`{name}`" in (transcoding.__doc__ or ""), name


def test_every_code_has_its_http_status() -> None:
    assert set(transcoding.HTTP_STATUS_BY_CODE) == set(code_pb2.Code.values())
    assert transcoding.http_status(code_pb2.ABORTED) == 409
    assert transcoding.http_status(4711) == 500


def test_the_error_body_is_that_of_aip_193() -> None:
    status = status_pb2.Status(code=code_pb2.RESOURCE_EXHAUSTED, message="The zone has no more.")
    info = error_details_pb2.ErrorInfo(reason="STOCKOUT", domain="compute.example.com", metadata={"zone": "a"})
    status.details.add().Pack(info)
    status.details.add().Pack(error_details_pb2.LocalizedMessage(locale="de", message="Nichts mehr da."))
    assert orjson.loads(transcoding.error_body(status)) == {
        "error": {
            "code": 429,
            "message": "The zone has no more.",
            "status": "RESOURCE_EXHAUSTED",
            "details": [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "STOCKOUT",
                    "domain": "compute.example.com",
                    "metadata": {"zone": "a"},
                },
                {
                    "@type": "type.googleapis.com/google.rpc.LocalizedMessage",
                    "locale": "de",
                    "message": "Nichts mehr da.",
                },
            ],
        }
    }


def test_a_detail_of_an_unknown_type_is_omitted() -> None:
    status = status_pb2.Status(code=code_pb2.INTERNAL, message="x")
    status.details.append(any_pb2.Any(type_url="x/no.Such", value=b"x"))
    status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay={"seconds": 2}))
    details = orjson.loads(transcoding.error_body(status))["error"]["details"]
    assert details == [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2s"}]


def test_an_undefined_code_is_reported_as_unknown() -> None:
    assert orjson.loads(transcoding.error_body(status_pb2.Status(code=99))) == {
        "error": {"code": 500, "message": "", "status": "UNKNOWN"}
    }


@pytest.mark.parametrize(
    ("error", "fields"),
    [
        (InvalidParams.field("book.title", "must be a string"), [("book.title", "must be a string")]),
        (InvalidParams("nothing fits"), []),
        (ParseError("no JSON"), []),
        (InvalidParams.field("\ud800", "\ud800"), [("?", "?")]),
    ],
)
def test_a_violation_is_an_invalid_argument_with_its_fields(
    error: InvalidParams | ParseError, fields: list[tuple[str, str]]
) -> None:
    status = transcoding.invalid_argument(error)
    assert status.code == code_pb2.INVALID_ARGUMENT
    violations = []
    for detail in status.details:
        bad_request = error_details_pb2.BadRequest()
        assert detail.Unpack(bad_request)
        violations += [(violation.field, violation.description) for violation in bad_request.field_violations]
    assert violations == fields
