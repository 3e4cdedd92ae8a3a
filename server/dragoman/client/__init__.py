"""A small asynchronous A2A client: the core of the command line, and of scripts like it.

    async with Client("127.0.0.1:50051") as client:
        answer = await client.send(message("echo hello"))

Messages are those of `lf.a2a.v1` in every dialect and over every binding; every failure is a `ClientError`.
"""

from dragoman.client.calls import Client, message
from dragoman.client.failure import ClientError

__all__ = ["Client", "ClientError", "message"]
