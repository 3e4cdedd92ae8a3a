"""What a store must not hold in clear: sealed with keys that are not in it (AES-256-GCM, NIST SP 800-38D).

A sealed text names its key and is bound to what it is about, so that it opens for nothing else: whoever can write into
the store cannot have a secret sent elsewhere. The first key seals, all of them open; a key may go when nothing is there
any more that it sealed. Texts from before there were keys are read as they are.
"""

from __future__ import annotations

import binascii
import logging
import os
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

PREFIX: Final = " sealed:1:"
"""Begins with a blank, which nothing that is sealed may begin with, so that no caller can write one."""

KEY: Final = 32
"""Bytes of a key."""

_NONCE: Final = 12
"""Bytes, made up anew for each text: a key may seal 2^32 of them (SP 800-38D §8.3)."""

_MAKE: Final = "make one with: openssl rand -base64 32"

_log: Final = logging.getLogger("dragoman.security")


class BadKeys(ValueError):
    """Keys that cannot be used. The text says which and why, and shows none."""


class Sealed(ValueError):
    """A text that cannot be opened. The text says why."""


class Vault:
    """Seals and opens texts. Without keys nothing is sealed, which the log says once."""

    def __init__(self, keys: Sequence[bytes] = (), *, entropy: Callable[[int], bytes] = os.urandom) -> None:
        """keys: 32 bytes each."""
        self._entropy = entropy
        self._ciphers: dict[str, Any] = {}
        self._said = False
        if keys:
            # Not above: cryptography takes its time to load, and servers without keys have no use for it.
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._ciphers = {_name(key): AESGCM(key) for key in keys}

    @property
    def locked(self) -> bool:
        """Whether there are keys."""
        return bool(self._ciphers)

    def seal(self, text: str, about: str) -> str:
        """The text as it is kept. Empty texts stay empty."""
        if not text:
            return ""
        if not self._ciphers:
            if not self._said:
                self._said = True
                _log.warning("secrets are kept in the store as they are, for whoever can read it; set --secrets-keys")
            return text
        name, cipher = next(iter(self._ciphers.items()))
        nonce = self._entropy(_NONCE)
        sealed = nonce + cipher.encrypt(nonce, text.encode(), about.encode())
        return f"{PREFIX}{name}:{urlsafe_b64encode(sealed).decode()}"

    def open(self, kept: str, about: str) -> str:
        """The text that was sealed; one that was not is given as it is. Raises Sealed."""
        if not kept.startswith(PREFIX):
            return kept
        name, _, sealed = kept.removeprefix(PREFIX).partition(":")
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise Sealed(f"it is sealed with the key {name[:16]}, which is not among --secrets-keys")
        from cryptography.exceptions import InvalidTag

        try:
            data = urlsafe_b64decode(sealed)
            return str(cipher.decrypt(data[:_NONCE], data[_NONCE:], about.encode()).decode())
        except (InvalidTag, ValueError) as error:
            raise Sealed("it was sealed for something else, or changed since") from error


def open_vault(path: Path | None) -> Vault:
    """The vault whose keys are in a file; without one it seals nothing. Raises BadKeys."""
    return Vault(read(path) if path is not None else ())


def read(path: Path) -> list[bytes]:
    """The keys in a file: each 32 bytes in base64, on a line of its own; `#` begins a remark. Raises BadKeys."""
    try:
        lines = path.read_text("ascii").splitlines()
    except OSError as error:
        raise BadKeys(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadKeys(f"{path}: must hold keys in base64, each on a line of its own") from error
    keys = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            key = b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY:
            raise BadKeys(f"{path}, line {number}: a key is {KEY} bytes in base64; {_MAKE}")
        keys.append(key)
    if not keys:
        raise BadKeys(f"{path}: holds no key; {_MAKE}")
    if len(set(keys)) < len(keys):
        raise BadKeys(f"{path}: holds a key twice")
    return keys


def _name(key: bytes) -> str:
    """What sealed texts call a key; it tells nothing of it."""
    return sha256(b"dragoman vault " + key).hexdigest()[:8]
