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

SEALED_PREFIX: Final = " sealed:1:"
"""Begins with a blank, which nothing that is sealed may begin with, so that no caller can write one."""

SECRET_KEY_BYTES: Final = 32
"""Bytes of a key."""

_NONCE_BYTES: Final = 12
"""Bytes, made up anew for each text: a key may seal 2^32 of them (SP 800-38D §8.3)."""

_KEY_HINT: Final = "make one with: openssl rand -base64 32"

_log: Final = logging.getLogger("dragoman.security")


class InvalidSecretKeys(ValueError):
    """Keys that cannot be used. The text says which and why, and shows none."""


class DecryptionFailed(ValueError):
    """A text that cannot be opened. The text says why."""


class AesGcmSecretBox:
    """Seals and opens texts. Without keys nothing is sealed, which the log says once."""

    def __init__(self, keys: Sequence[bytes] = (), *, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        """keys: 32 bytes each."""
        self._random_bytes = random_bytes
        self._ciphers: dict[str, Any] = {}
        self._warned = False
        if keys:
            # Not above: cryptography takes its time to load, and servers without keys have no use for it.
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._ciphers = {_key_name(key): AESGCM(key) for key in keys}

    @property
    def has_keys(self) -> bool:
        """Whether there are keys."""
        return bool(self._ciphers)

    def encrypt(self, text: str, context: str) -> str:
        """The text as it is kept. Empty texts stay empty."""
        if not text:
            return ""
        if not self._ciphers:
            if not self._warned:
                self._warned = True
                _log.warning("secrets are kept in the store as they are, for whoever can read it; set --secrets-keys")
            return text
        name, cipher = next(iter(self._ciphers.items()))
        nonce = self._random_bytes(_NONCE_BYTES)
        sealed = nonce + cipher.encrypt(nonce, text.encode(), context.encode())
        return f"{SEALED_PREFIX}{name}:{urlsafe_b64encode(sealed).decode()}"

    def decrypt(self, value: str, context: str) -> str:
        """The text that was sealed; one that was not is given as it is. Raises Sealed."""
        if not value.startswith(SEALED_PREFIX):
            return value
        name, _, sealed = value.removeprefix(SEALED_PREFIX).partition(":")
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise DecryptionFailed(f"it is sealed with the key {name[:16]}, which is not among --secrets-keys")
        from cryptography.exceptions import InvalidTag

        try:
            data = urlsafe_b64decode(sealed)
            return str(cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], context.encode()).decode())
        except (InvalidTag, ValueError) as error:
            raise DecryptionFailed("it was sealed for something else, or changed since") from error


def open_secret_box(path: Path | None) -> AesGcmSecretBox:
    """The vault whose keys are in a file; without one it seals nothing. Raises BadKeys."""
    return AesGcmSecretBox(read_secret_keys(path) if path is not None else ())


def read_secret_keys(path: Path) -> list[bytes]:
    """The keys in a file: each 32 bytes in base64, on a line of its own; `#` begins a remark. Raises BadKeys."""
    try:
        lines = path.read_text("ascii").splitlines()
    except OSError as error:
        raise InvalidSecretKeys(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidSecretKeys(f"{path}: must hold keys in base64, each on a line of its own") from error
    keys = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            key = b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != SECRET_KEY_BYTES:
            raise InvalidSecretKeys(f"{path}, line {number}: a key is {SECRET_KEY_BYTES} bytes in base64; {_KEY_HINT}")
        keys.append(key)
    if not keys:
        raise InvalidSecretKeys(f"{path}: holds no key; {_KEY_HINT}")
    if len(set(keys)) < len(keys):
        raise InvalidSecretKeys(f"{path}: holds a key twice")
    return keys


def _key_name(key: bytes) -> str:
    """What sealed texts call a key; it tells nothing of it."""
    return sha256(b"dragoman vault " + key).hexdigest()[:8]
