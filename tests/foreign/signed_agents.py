"""Agents with cards that test canonical JSON: many scripts, all kinds of numbers, nested empty values."""

from __future__ import annotations

from dragoman import Extension, Skill, Turn, agent

PARAMS = {
    "numbers": [0, -0.0, 1, 1.5, 1e21, 1e-7, 333333333.33333329, 2.0**60, -1],
    "texts": ["", "é", "\U0001f600", "\ufb33", "\u2028", 'quote " and \\', "\x0f\n"],
    "empty": {"list": [], "object": {}, "text": "", "inner": [{"a": []}]},
    "Ä": True,
    "a": None,
    "\U0001f600": 1,
    "\ufb33": 2,
}


@agent(
    default=True,
    description="Übersetzt — 翻訳 \U0001f600",
    skills=[Skill(id="s", name="Späße", description="«ß»", tags=("ﬁ",), examples=("日本",))],
    extended_skills=[Skill(id="hidden", name="Hidden", description="For those who are known")],
    extensions=[Extension(uri="https://x.example/e", description="é", params=PARAMS)],
    security_schemes={
        "login": {
            "type": "oauth2",
            "flows": {"clientCredentials": {"tokenUrl": "https://x.example/token", "scopes": {}}},
        }
    },
)
async def echo(turn: Turn) -> str:
    return turn.text


@agent
async def plain(turn: Turn) -> str:
    return turn.text
