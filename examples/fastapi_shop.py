"""A FastAPI application with routes and a login of its own, and an agent below /agents.

    pip install fastapi uvicorn
    uvicorn --app-dir examples fastapi_shop:app --port 8000 --timeout-graceful-shutdown 5

docs/how-to/asgi.md is the guide. Kill the application during a delivery and start it again: the delivery goes on, and
so does a client that was watching it.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import MutableMapping
from typing import Any

from fastapi import FastAPI, HTTPException
from starlette.requests import HTTPConnection

from dragoman import Turn, agent, retry
from dragoman.asgi import AsgiApp

SECONDS_PER_PARCEL = float(os.environ.get("SECONDS_PER_PARCEL", "0.2"))
SECRET = os.environ.get("SHOP_SECRET", "an example has no secret").encode()

passwords = {"ann": "apple", "bob": "pear"}
stock = {"apples": 3, "pears": 5}


def token_of(name: str) -> str:
    return f"{name}.{hmac.new(SECRET, name.encode(), 'sha256').hexdigest()}"


def caller(scope: MutableMapping[str, Any]) -> str | None:
    """Who calls an agent: the user whose token this is. None is answered with 401."""
    token = HTTPConnection(scope).headers.get("authorization", "").removeprefix("Bearer ")
    name = token.partition(".")[0]
    return name if name in passwords and hmac.compare_digest(token.encode(), token_of(name).encode()) else None


@agent(on_crash=retry(10))
async def delivery(turn: Turn) -> None:
    """Delivers what the message names, one parcel after the other."""
    delivered = turn.state.get("delivered", 0)  # by an earlier attempt, whose process was killed
    for number, name in enumerate(turn.text.split()[delivered:], delivered + 1):
        await asyncio.sleep(SECONDS_PER_PARCEL)
        turn.state["delivered"] = number
        turn.artifact(f"{name} delivered to {turn.principal}\n", id=f"parcel-{number}")


agents = AsgiApp(delivery, authenticate=caller)
app = FastAPI(lifespan=agents.lifespan)
app.mount("/agents", agents)


@app.get("/stock")
async def read_stock() -> dict[str, int]:
    return stock


@app.post("/login")
async def login(name: str, password: str) -> str:
    if passwords.get(name) != password:
        raise HTTPException(401, "unknown name or password")
    return token_of(name)
