"""`make settings`: writes the table of commands of docs/reference/cli.md from those of `dragoman --help`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dragoman.cli import COMMANDS, load_command

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
BEGIN: Final = "<!-- commands: begin -->\n"
END: Final = "<!-- commands: end -->"


def rows() -> Iterator[str]:
    """Yields the lines of the table: a command with its subcommands, and its first sentence."""
    panel = ""
    for name, spec in COMMANDS.items():
        if spec.panel != panel:
            panel = spec.panel
            yield f"| **{panel}** | |"
        children = ", ".join(f"`{child}`" for child in getattr(load_command(name), "commands", {}))
        text = spec.help.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        yield f"| `{name}`{': ' if children else ''}{children} | {text} |"


def page(text: str) -> str:
    """The page with a new table."""
    before, _, rest = text.partition(BEGIN)
    table = "\n".join(("| command | purpose |", "|---|---|", *rows()))
    return f"{before}{BEGIN}{table}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
