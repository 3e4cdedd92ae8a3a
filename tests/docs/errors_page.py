"""`make protocol-pages`: writes the table of docs/reference/protocol/errors.md from `dragoman.wire.errors`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dragoman.core import errors
from dragoman.core.errors import A2AError
from dragoman.wire.dialects import Dialect
from dragoman.wire.errors import (
    ErrorCodes,
    ErrorTable,
    HeaderTooLong,
    MethodNotAllowed,
    RequestLineTooLong,
    RequestTooSlow,
    TransferCodingNotSupported,
    codes,
    jsonrpc_error,
)

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "protocol" / "errors.md"
BEGIN: Final = "<!-- codes: begin -->\n"
END: Final = "<!-- codes: end -->"

HEAD: Final = (
    "| error | reason | JSON-RPC | 1.0 and Google: HTTP, gRPC | 1.0.0: HTTP, gRPC | 0.3: HTTP, gRPC | 0.1 JSON-RPC |\n"
    "|---|---|---|---|---|---|---|\n"
)


WIRE_ERRORS: Final[dict[type[A2AError], tuple[type[A2AError], ...]]] = {
    errors.InvalidRequest: (RequestTooSlow, RequestLineTooLong, HeaderTooLong, TransferCodingNotSupported),
    errors.MethodNotFound: (MethodNotAllowed,),
}
"""Errors of HTTP itself, by the error that they follow."""


def kinds() -> Iterator[type[A2AError]]:
    """Returns every error class with its own name, in the order of definition."""
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, A2AError) and kind is not A2AError:
            yield kind
            yield from WIRE_ERRORS.get(kind, ())


def created(kind: type[A2AError]) -> A2AError:
    return MethodNotAllowed("GET", ["POST"]) if kind is MethodNotAllowed else kind()


def row(kind: type[A2AError]) -> str:
    error = created(kind)

    def reported(dialect: Dialect, table: ErrorTable = "1.0.1") -> ErrorCodes:
        return codes(error, dialect, table=table)

    v1, before, v03 = reported(Dialect.V1), reported(Dialect.V1, "1.0.0"), reported(Dialect.V03)
    numbers = {reported(dialect).jsonrpc for dialect in (Dialect.V1, Dialect.RUST)}
    assert numbers == {v1.jsonrpc}
    google = reported(Dialect.GOOGLE)
    assert google._replace(reason=v1.reason) == v1
    number = str(v1.jsonrpc) if v03.jsonrpc == v1.jsonrpc else f"{v1.jsonrpc}; before 1.0 {v03.jsonrpc}"
    cells = [
        kind.__name__,
        v1.reason
        + (f"; before 1.0 {v03.reason}" if v03.reason != v1.reason else "")
        + (f"; Google {google.reason}" if google.reason != v1.reason else ""),
        number,
        _statuses(v1),
        _statuses(before) if before != v1 else "the same",
        _statuses(v03) if v03[:2] != v1[:2] else "the same",
        str(jsonrpc_error(error, Dialect.V01)["code"]),
    ]
    return f"| {' | '.join(cells)} |\n"


def _statuses(row: ErrorCodes) -> str:
    return f"{row.http}, {row.rpc.name}"


def table() -> str:
    return HEAD + "".join(map(row, kinds()))


def page(text: str) -> str:
    """Returns the page with the current table."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.split(END, 1)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
