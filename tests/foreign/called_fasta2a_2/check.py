"""An agent of fasta2a 2.x, called by our client."""

from __future__ import annotations

import asyncio
import sys
from argparse import Namespace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from checks import finish
from fasta2a_words import serve_and_call

PARTS = Namespace(
    kind={},
    text=lambda words: {"text": words},
    raw=lambda data, name, kind: {"raw": data, "filename": name, "media_type": kind},
    data=lambda value: {"data": value, "media_type": "application/json"},
)

# Its tasks have an artifact only when it is complete, so content after a gap in a stream is repeated.
finish(asyncio.run(serve_and_call("fasta2a 2", PARTS)))
