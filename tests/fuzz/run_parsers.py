"""`make fuzz-parsers`: coverage-guided fuzzing of every parser, for FUZZ_SECONDS (60) each.

FUZZ_PARSERS selects some (`json,url`). The corpus is kept in `.fuzz/NAME`, where the next run starts. An input that
fails is kept in `.fuzz/found` and should become a seed or a test. Prints the counts, and exits with 1 after a failure.
Without atheris, inputs are random combinations of seeds and words.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.fuzz.parser import Parser
from tests.fuzz.parsers import PARSERS

ROOT: Final = Path(__file__).parents[2]
CORPUS: Final = ROOT / ".fuzz"
FOUND: Final = CORPUS / "found"
MAX_INPUT_BYTES: Final = 4096
"""Maximum bytes of an input."""
SECONDS_EACH: Final = 10
"""Maximum seconds for one input."""


def say(text: str) -> None:
    print(f"fuzz-parsers: {text}", flush=True)


def guided(name: str, parser: Parser, seconds: int) -> tuple[int, int, int]:
    """Runs libFuzzer. Returns the numbers of inputs and of corpus entries, and the exit code."""
    corpus, words = CORPUS / name, CORPUS / f"{name}.words"
    corpus.mkdir(parents=True, exist_ok=True)
    FOUND.mkdir(exist_ok=True)
    for number, seed in enumerate(parser.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    words.write_text("".join(f"{json.dumps(word)}\n" for word in parser.words if "\\" not in word))
    log = CORPUS / f"{name}.log"
    options = (
        f"-max_total_time={seconds}",
        f"-max_len={MAX_INPUT_BYTES}",
        f"-timeout={SECONDS_EACH}",
        "-rss_limit_mb=2048",
    )
    kept = [f"-artifact_prefix={FOUND}/{name}-", "-print_final_stats=1", "-reload=0"]
    if words.stat().st_size:
        kept.append(f"-dict={words}")
    with log.open("wb") as output:
        code = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.guided", name, *options, *kept, str(corpus)],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    text = log.read_text(errors="replace")
    done = re.search(r"stat::number_of_executed_units:\s*(\d+)", text)
    if code:
        print(text[-4000:])
    return int(done[1]) if done else 0, sum(1 for _ in corpus.iterdir()), code


def unguided(name: str, parser: Parser, seconds: int) -> tuple[int, int, int]:
    """Runs random combinations of seeds and words. Returns the same as `guided`."""
    chance, until, count = random.Random(), time.monotonic() + seconds, 0
    pieces = [*parser.seeds, *(word.encode() for word in parser.words)]
    while time.monotonic() < until:
        created = bytearray(b"".join(chance.choice(pieces) for _ in range(chance.randint(1, 3))))
        for _ in range(chance.randint(0, 8)):
            at = chance.randrange(len(created) + 1)
            created[at : at + chance.randint(0, 4)] = chance.choice((chance.randbytes(2), chance.choice(pieces)))
        count += 1
        try:
            parser.read(bytes(created))
        except Exception:
            FOUND.mkdir(parents=True, exist_ok=True)
            (FOUND / f"{name}-{count}").write_bytes(created)
            sys.excepthook(*sys.exc_info())
            return count, 0, 1
    return count, 0, 0


def main() -> int:
    seconds = max(1, int(os.environ.get("FUZZ_SECONDS", "60")))
    texts = [name for name in os.environ.get("FUZZ_PARSERS", "").split(",") if name] or list(PARSERS)
    if unknown := [name for name in texts if name not in PARSERS]:
        say(f"there is no parser {', '.join(unknown)}; there are {', '.join(PARSERS)}")
        return 2
    is_guided = importlib.util.find_spec("atheris") is not None
    how = "guided by what they reach" if is_guided else "unguided: no atheris"
    say(f"{len(texts)} parsers, {seconds} s each, {how}")
    total, broken, began = 0, [], time.monotonic()
    for name in texts:
        count, kept, code = (guided if is_guided else unguided)(name, PARSERS[name], seconds)
        total += count
        if code:
            broken.append(name)
        say(f"{name:12} {count:>10} inputs, {kept:>5} kept: {'FAILED' if code else 'ok'}")
    verdict = f"FAILED: {', '.join(broken)}; see {FOUND}" if broken else "ok"
    say(f"{total} inputs of {len(texts)} parsers in {time.monotonic() - began:.1f}s: {verdict}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
