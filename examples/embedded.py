"""A server inside another asyncio program: `python examples/embedded.py`.

The program prices a basket; its agent answers from the same objects. `on_startup` opens what turns need, and closes it
after the last one. `dragoman serve examples/embedded.py` serves the same agent without the program.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator

from dragoman import Turn, agent, on_startup, open_app
from dragoman.client import connect

prices: sqlite3.Connection


@on_startup
async def open_prices() -> AsyncIterator[None]:
    """Runs once per process, before the first turn; what is behind `yield` after the last."""
    global prices
    prices = sqlite3.connect(":memory:", check_same_thread=False)
    prices.execute("CREATE TABLE price (fruit TEXT PRIMARY KEY, cents INTEGER)")
    prices.executemany("INSERT INTO price VALUES (?, ?)", [("apple", 30), ("pear", 45)])
    yield
    prices.close()


@agent(name="Cashier", description="Prices a basket of fruit")
async def cashier(turn: Turn) -> dict[str, int]:
    """Answers with the cents of each fruit in the message."""
    known = dict(prices.execute("SELECT fruit, cents FROM price").fetchall())
    return {word: known[word] for word in turn.text.split() if word in known}


async def main() -> None:
    # `memory:` keeps nothing; leave `store` out to keep tasks in ./dragoman.db, as `dragoman serve` does.
    async with open_app(cashier, http="127.0.0.1:0", grpc="127.0.0.1:0", store="memory:") as server:
        print(f"{', '.join(server.agents)} at {server.url} and grpc://{server.grpc}")
        async with connect(server.url) as client:
            result = await client.ask("apple pear")
            print(result.data)
    print("stopped")


if __name__ == "__main__":
    asyncio.run(main())
