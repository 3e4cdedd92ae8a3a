"""Makes tasks.db a store of a newer release, which older ones may serve or, called with `refused`, may not."""

import sqlite3
import sys

with sqlite3.connect("tasks.db") as store:
    (schema,) = store.execute("PRAGMA user_version").fetchone()
    if sys.argv[1:] == ["refused"]:
        store.execute("UPDATE meta SET value = ? WHERE name = 'oldest'", (schema,))
    else:
        store.execute(f"PRAGMA user_version = {schema + 1}")
