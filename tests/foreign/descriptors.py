"""Compares the recorded facts about the published protos with those in a2a-sdk.

Run by `make foreign` in each environment that holds an a2a-sdk, 1.x or 0.3.x.  tests/proto compares our own
descriptors with the same record, so that both together say: ours equal the SDK's.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import extract_reference  # noqa: E402  (found only with the path above)


def check_recorded() -> None:
    """Compares the record with the SDK of this environment. Raises AssertionError for a difference."""
    assert extract_reference.main([str(ROOT / "tests/proto/reference"), "--check"]) == 0
