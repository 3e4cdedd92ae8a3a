"""The library: a gRPC service without HTTP code. `python library.py` serves gRPC and HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from aiohttp import web
from gateway import Gateway
from google.protobuf import empty_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

# grpcio-tools compiles the proto at import; your project would generate code and commit it.
library_pb2, library_pb2_grpc = grpc.protos_and_services("library.proto")
SERVICE = library_pb2.DESCRIPTOR.services_by_name["Library"]


class Library(library_pb2_grpc.LibraryServicer):
    """Books in memory, by name."""

    def __init__(self) -> None:
        self.books: dict[str, Any] = {}
        self.changed = asyncio.Condition()

    async def ListShelves(self, request: Any, context: Any) -> Any:
        return library_pb2.ListShelvesResponse(shelves=sorted({shelf(name) for name in self.books}))

    async def GetBook(self, request: Any, context: Any) -> Any:
        book = await self._find(request.name, context)
        if not request.read_mask.paths or "*" in request.read_mask.paths:
            return book
        await check(request.read_mask, "readMask", context)
        shown = library_pb2.Book()
        request.read_mask.MergeMessage(book, shown)
        return shown

    async def ListBooks(self, request: Any, context: Any) -> Any:
        if request.page_size < 0:
            await fail(context, "INVALID_ARGUMENT", "pageSize must not be negative", field="pageSize")
        after = request.page_token
        found = [
            book
            for name, book in sorted(self.books.items())
            if name > after
            and request.parent in ("", shelf(name))
            and (not request.genres or book.genre in request.genres)
            and (not request.HasField("free") or book.free is request.free.value)
            and book.published.ToNanoseconds() >= request.published_after.ToNanoseconds()
        ]
        size = request.page_size or 50
        more = found[size - 1].name if len(found) > size else ""
        return library_pb2.ListBooksResponse(books=found[:size], next_page_token=more)

    async def CreateBook(self, request: Any, context: Any) -> Any:
        name = f"{request.parent}/books/{request.book_id or len(self.books) + 1}"
        if name in self.books:
            await fail(context, "ALREADY_EXISTS", f"{name} already exists")
        return await self._put(name, request.book)

    async def UpdateBook(self, request: Any, context: Any) -> Any:
        """AIP-134: the fields of the mask; without one, those that are set; with `*`, all."""
        book, mask = await self._find(request.book.name, context), request.update_mask
        changed = library_pb2.Book()
        changed.CopyFrom(book)
        if "*" in mask.paths:
            changed.CopyFrom(request.book)
        else:
            await check(mask, "updateMask", context)
            if not mask.paths:
                mask.paths.extend(field.name for field, _ in request.book.ListFields())
            mask.MergeMessage(request.book, changed, True, True)
        return await self._put(book.name, changed)

    async def DeleteBook(self, request: Any, context: Any) -> Any:
        await self._find(request.name, context)
        del self.books[request.name]
        return empty_pb2.Empty()

    async def MoveBook(self, request: Any, context: Any) -> Any:
        book = await self._find(request.name, context)
        name = f"{request.destination}/books/{request.name.rpartition('/')[2]}"
        del self.books[request.name]
        return await self._put(name, book)

    async def WatchBooks(self, request: Any, context: Any) -> AsyncIterator[Any]:
        reported = 0
        while True:
            new = [book for name, book in self.books.items() if shelf(name) == request.parent][reported:]
            if not new and not reported:
                await fail(context, "NOT_FOUND", f"there is no {request.parent}")
            for book in new:
                yield book
                reported += 1
                if reported == request.count:
                    return
            if not new:
                async with self.changed:
                    await self.changed.wait()

    async def _find(self, name: str, context: Any) -> Any:
        if name not in self.books:
            await fail(context, "NOT_FOUND", f"there is no {name}")
        return self.books[name]

    async def _put(self, name: str, book: Any) -> Any:
        kept = library_pb2.Book()
        kept.CopyFrom(book)
        kept.name = name
        self.books[name] = kept
        async with self.changed:
            self.changed.notify_all()
        return kept


def shelf(name: str) -> str:
    """Returns `shelves/7` for `shelves/7/books/3`."""
    return name.rpartition("/books/")[0]


async def check(mask: Any, field: str, context: Any) -> None:
    if not mask.IsValidForDescriptor(library_pb2.Book.DESCRIPTOR):
        await fail(context, "INVALID_ARGUMENT", f"{field} has a path that is not a field of a book", field=field)


async def fail(context: Any, code: str, message: str, *, field: str = "") -> None:
    """Ends a call with an error of AIP-193: a code, a message for users, and details for programs."""
    status = status_pb2.Status(code=grpc.StatusCode[code].value[0], message=message)
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=code, domain="library.example.com"))
    if field:
        bad = error_details_pb2.BadRequest()
        bad.field_violations.add(field=field, description=message)
        status.details.add().Pack(bad)
    await context.abort_with_status(rpc_status.to_status(status))


async def serve(*, grpc_port: int = 0, http_port: int = 0) -> tuple[str, str, Any, web.AppRunner]:
    """Serves both ports on loopback (0: any port). Returns gRPC's HOST:PORT, HTTP's URL, and both servers."""
    server = grpc.aio.server()
    library_pb2_grpc.add_LibraryServicer_to_server(Library(), server)
    target = f"127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{grpc_port}')}"
    await server.start()
    gateway = Gateway(grpc.aio.insecure_channel(target), SERVICE)
    runner = web.AppRunner(gateway.app(), handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", http_port)
    await site.start()
    host, port = runner.addresses[0][:2]
    return target, f"http://{host}:{port}", server, runner


async def main() -> None:
    target, url, server, _ = await serve(grpc_port=50061, http_port=8061)
    print(f"gRPC {target}, HTTP {url}; stop with Ctrl-C", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
