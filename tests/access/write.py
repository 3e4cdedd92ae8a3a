"""`make access`: regenerates docs/reference/access.md."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from tests.access.table import PAGE, page
from tests.access.test_access import running_server


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with running_server(Path(folder)) as (_, endpoints):
            PAGE.write_text(page(endpoints), "utf-8")


if __name__ == "__main__":
    asyncio.run(main())
