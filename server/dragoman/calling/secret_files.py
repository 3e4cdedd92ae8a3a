"""Reads secrets from files: containers and service managers give them so, and no list of processes shows them."""

from __future__ import annotations

from pathlib import Path


def read_secret(path: Path | str) -> str:
    """The text of a file, without white space around it. Raises ValueError, naming the file and the rule.

    Only of a regular file: to open a named pipe that nobody writes to would wait for ever.
    """
    file = Path(path)
    try:
        if file.exists() and not file.is_file():
            raise ValueError(f"{file} is not a regular file")
        secret = file.read_text("utf-8-sig").strip()  # editors on Windows write a byte order mark
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} cannot be read: it is not text in UTF-8") from error
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror or error}") from error
    if not secret:  # a secret that was not mounted would turn authentication off
        raise ValueError(f"{file} is empty; write the value into it")
    return secret


def check_header_secret(secret: str, name: str = "") -> str:
    """Returns a secret, empty for none, that can be sent in a header. Raises ValueError with `name` and the rule."""
    if secret != secret.strip() or not secret.isascii() or not secret.isprintable():
        rule = "must be printable ASCII on one line, without leading or trailing spaces, to fit into a header"
        raise ValueError(f"{name}: {rule}" if name else rule)
    return secret
