"""Client library for agents on any A2A server, of any version, over any binding.

    async with connect("https://agents.example") as client:
        result = await client.ask("Summarise this", files=["report.pdf"])
        print(result.text)

        async for event in client.run("count to ten", agent="counter"):
            ...

`connect` reads the agent's card and returns a `Connection`; `dragoman.client.sync` is the blocking variant, and
`dragoman.client.webhooks` verifies push notifications. Every failure is a `ClientError`.
See docs/how-to/client.md.
"""

from dragoman.calling.errors import (
    Busy,
    ClientError,
    Conflict,
    InactivityTimeout,
    Invalid,
    NotAllowed,
    NotFound,
    NotSupported,
    ProtocolError,
    ServerUnavailable,
)
from dragoman.client.connection import Connection, connect
from dragoman.client.events import Artifact, Data, Event, File, Finished, Question, Result, Status, TaskFailed, Text

__all__ = [
    "connect", "Connection", "Event", "Text", "Status", "Artifact", "Data", "File", "Question", "Finished", "Result",
    "ClientError", "TaskFailed", "NotFound", "NotAllowed", "NotSupported", "Invalid", "Conflict", "Busy",
    "ServerUnavailable", "InactivityTimeout", "ProtocolError",
]  # fmt: skip
