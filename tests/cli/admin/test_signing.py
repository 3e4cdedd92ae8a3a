"""`dragoman signing`: list, rotate and withdraw keys; and reload of the card file on SIGHUP."""

from __future__ import annotations

import json
import signal
import urllib.request
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.server import serving

pytestmark = pytest.mark.long


def fetched(url: str) -> dict[str, object]:
    with urllib.request.urlopen(url, timeout=60) as answer:
        found: dict[str, object] = json.load(answer)
        return found


def test_keys_are_rotated_listed_and_withdrawn_and_cards_are_reloaded(tmp_path: Path, dragoman: Run) -> None:
    cards = tmp_path / "cards.toml"
    cards.write_text('[playground]\nname = "First"\n')
    options = ("--card-file", str(cards), "--sign-cards", "--public-url", "http://agents.localhost")
    with serving(*options, cwd=tmp_path) as server:
        at = ("--server", server.grpc)
        listed = dragoman("signing", "list", *at)
        assert listed.code == 0, listed
        first = listed.out.split()[0]
        assert listed.out == f"{first}  ES256  signing  created with the store\n"
        rotated = dragoman("signing", "rotate", "--algorithm", "EdDSA", *at)
        assert rotated.code == 0, rotated
        fresh = rotated.out.split()[0]
        assert f"{fresh}  EdDSA  next     created " in rotated.out
        lines = dragoman("signing", "list", *at).out.splitlines()
        assert [line.split()[0] for line in lines] == [fresh, first]
        assert "  signs from " in lines[0]
        assert "  published until " in lines[1]
        again = dragoman("signing", "rotate", *at)
        assert (again.code, again.out) == (3, "")
        assert "does not sign yet" in again.err
        assert dragoman("signing", "withdraw", fresh, *at).out == f"{fresh}  is no longer published\n"
        now = dragoman("signing", "rotate", "--lead", "0", "--keep", "0", "--json", *at)
        signing = json.loads(now.out)
        assert (signing["algorithm"], signing["state"]) == ("ES256", "SIGNING_KEY_STATE_SIGNING")
        shown = fetched(f"{server.http}/.well-known/jwks.json")
        assert [key["kid"] for key in shown["keys"]] == [signing["id"]]  # type: ignore[attr-defined]
        assert dragoman("signing", "withdraw", first, *at).code == 4
        wrong = dragoman("signing", "rotate", "--lead", "soon", *at)
        assert wrong.code == 2

        assert fetched(f"{server.http}/.well-known/agent-card.json")["name"] == "First"
        cards.write_text('[playground]\nname = "Second"\n')
        server.signal(signal.SIGHUP)
        server.err.until("cards now have the overrides in")
        assert fetched(f"{server.http}/.well-known/agent-card.json")["name"] == "Second"
        server.signal(signal.SIGTERM)
        assert server.ends() == 0


@pytest.mark.parametrize(
    "id", ["-Lz6fNpoHd5eMeX8urVMyWH2XJ6dYgRB6gNN_ilue8Q", "-hz6fNpoHd5eMeX8urVMyWH2XJ6dYgRB6gNN_ilue8Q"]
)
def test_an_id_that_begins_with_a_dash_is_not_an_option(id: str, dragoman: Run) -> None:
    result = dragoman("signing", "withdraw", id, "--server", "127.0.0.1:9")
    assert (result.code, "127.0.0.1:9" in result.err) == (3, True)
