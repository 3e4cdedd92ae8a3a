"""An agent of fasta2a 0.6, called by our client: it supports neither streams nor follow-up messages."""

from __future__ import annotations

import asyncio
import sys
from argparse import Namespace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from checks import finish
from fasta2a_words import serve_and_call

PARTS = Namespace(
    kind={"kind": "message"},
    text=lambda words: {"kind": "text", "text": words},
    raw=lambda data, name, kind: {"kind": "file", "file": {"bytes": data, "name": name, "mime_type": kind}},
    data=lambda value: {"kind": "data", "data": value},
)

finish(asyncio.run(serve_and_call("fasta2a 0.6", PARTS, "stream", "restart")))
