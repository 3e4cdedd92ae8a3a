"""Encrypts secrets in the store with keys outside it (AES-256-GCM, NIST SP 800-38D).

A ciphertext names its key and is bound to its context, so that write access to the store does not suffice to move a
secret to another receiver. The first key encrypts, all keys decrypt; a key can be removed when no ciphertext uses it.
Texts stored before the first key are read unchanged.
"""

from __future__ import annotations

import binascii
import logging
import os
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

SEALED_PREFIX: Final = " sealed:1:"
"""Starts with a space, which plaintext must not, so that no caller can forge a ciphertext."""

SECRET_KEY_BYTES: Final = 32

_NONCE_BYTES: Final = 12  # size of a random nonce, which limits a key to 2^32 texts (SP 800-38D §8.3)
_KEY_HINT: Final = "make one with: openssl rand -base64 32"

_log: Final = logging.getLogger("dragoman.security")


class InvalidSecretKeys(ValueError):
    """The key file is invalid. The text names file, line and reason, never a key."""


class DecryptionFailed(ValueError):
    """A ciphertext cannot be decrypted. The text gives the reason."""


class AesGcmSecretBox:
    """Encrypts and decrypts texts. Without keys texts stay plain, which is logged once."""

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        """keys: 32 bytes each."""
        self.has_keys = bool(keys)
        self._ciphers: dict[str, Any] = {}
        self._warned = False
        if keys:
            # Imported here: cryptography is slow to import, and servers without keys do not need it.
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._ciphers = {_key_name(key): AESGCM(key) for key in keys}

    def encrypt(self, text: str, context: str) -> str:
        """Encrypts a text for the store. Empty texts stay empty."""
        if not text:
            return ""
        if not self._ciphers:
            if not self._warned:
                self._warned = True
                _log.warning("secrets are stored unencrypted; readers of the store can see them; pass --secrets-keys")
            return text
        name, cipher = next(iter(self._ciphers.items()))
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + cipher.encrypt(nonce, text.encode(), context.encode())
        return f"{SEALED_PREFIX}{name}:{urlsafe_b64encode(sealed).decode()}"

    def decrypt(self, value: str, context: str) -> str:
        """Decrypts a text; returns unencrypted texts unchanged. Raises DecryptionFailed."""
        if not value.startswith(SEALED_PREFIX):
            return value
        name, _, sealed = value.removeprefix(SEALED_PREFIX).partition(":")
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise DecryptionFailed(f"it is encrypted with key {name[:16]}, which is not in --secrets-keys")
        from cryptography.exceptions import InvalidTag

        try:
            data = urlsafe_b64decode(sealed)
            return str(cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], context.encode()).decode())
        except (InvalidTag, ValueError) as error:
            raise DecryptionFailed("it was encrypted for another context, or has been modified") from error


def read_secret_keys(path: Path) -> list[bytes]:
    """Reads keys from a file: 32 bytes in base64 per line; `#` starts a comment. Raises InvalidSecretKeys."""
    try:
        lines = path.read_text("ascii").splitlines()
    except OSError as error:
        raise InvalidSecretKeys(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidSecretKeys(f"{path}: must contain keys in base64, one per line") from error
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
        raise InvalidSecretKeys(f"{path}: contains no key; {_KEY_HINT}")
    if len(set(keys)) < len(keys):
        raise InvalidSecretKeys(f"{path}: contains a key twice")
    return keys


def _key_name(key: bytes) -> str:
    """The name of a key in ciphertexts; a hash that reveals nothing about the key."""
    return sha256(b"dragoman vault " + key).hexdigest()[:8]
