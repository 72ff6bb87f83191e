"""Secrets at rest: sealed with AES-256-GCM, under keys that can be replaced one day.

Sealed text reads `enc:v1:<key id>:<base64 of nonce and ciphertext>`. What it belongs to (an account, a URL, a
row) goes into `aad`: a value copied to another place cannot be opened there.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nanobot.errors import StoreError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_VARIABLE: Final = "NANOBOT_ENCRYPTION_KEY"
PREVIOUS_VARIABLE: Final = "NANOBOT_ENCRYPTION_KEY_PREVIOUS"
KEY_FILE: Final = "nanobot.key"

_PREFIX: Final = b"enc:v1:"
_NONCE_BYTES: Final = 12


class CannotOpen(StoreError):
    """A sealed value was made with a key we do not have, for another place, or was changed since."""

    code = "store.cannot_open"

    def __init__(self) -> None:
        super().__init__(f"A stored secret cannot be opened with the present key ({KEY_VARIABLE}).")


@dataclass(frozen=True, slots=True)
class Key:
    """256 random bits, and the name by which sealed values refer to them."""

    id: str
    secret: bytes

    def __repr__(self) -> str:
        return f"Key({self.id!r})"

    @staticmethod
    def of(text: str) -> Key:
        """The key that a text of any length stands for; blanks around it do not count."""
        secret = hashlib.sha256(text.strip().encode()).digest()
        return Key(hashlib.sha256(b"nanobot key id\0" + secret).hexdigest()[:8], secret)


class Sealer:
    """Seals with its first key and opens with any of them."""

    def __init__(self, key: Key, *previous: Key) -> None:
        self._key = key
        self._keys = {one.id: one for one in (*previous, key)}

    def seal(self, data: bytes, aad: bytes) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + _cipher(self._key).encrypt(nonce, data, aad)
        return _PREFIX + self._key.id.encode() + b":" + base64.b64encode(sealed)

    def open(self, sealed: bytes, aad: bytes) -> bytes:
        """What was sealed with the same `aad`. Raises `CannotOpen`."""
        from cryptography.exceptions import InvalidTag

        if not sealed.startswith(_PREFIX):
            raise CannotOpen
        id, _, text = sealed.removeprefix(_PREFIX).partition(b":")
        key = self._keys.get(id.decode("latin-1"))
        if key is None:
            raise CannotOpen
        try:
            raw = base64.b64decode(text, validate=True)
            return _cipher(key).decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], aad)
        except (InvalidTag, binascii.Error, ValueError) as e:
            raise CannotOpen from e

    def derive(self, purpose: str) -> bytes:
        """A key of 256 bits for `purpose`, the same in every process that has our first key."""
        return hmac.digest(self._key.secret, b"nanobot derived key\0" + purpose.encode(), "sha256")

    def is_current(self, sealed: bytes) -> bool:
        """Whether `sealed` was made with the first key; else it should be sealed anew."""
        return sealed.startswith(_PREFIX + self._key.id.encode() + b":")


def load_sealer(home: Path, env: Mapping[str, str], *, configured: str = "") -> Sealer:
    """The sealer of one installation. Blocks.

    Its key is `configured`, else NANOBOT_ENCRYPTION_KEY, else the random one in `<home>/nanobot.key`, made
    (mode 0600) if missing. NANOBOT_ENCRYPTION_KEY_PREVIOUS and an existing key file still open old values.
    Raises `StoreError`.
    """
    path = home / KEY_FILE
    texts = [text for text in (configured, env.get(KEY_VARIABLE, "")) if text.strip()]
    try:
        if not texts or path.exists():
            texts.append(_key_file(path))
    except OSError as e:
        raise StoreError(f"The key file '{path}' cannot be used: {e.strerror or e}.") from e
    if env.get(PREVIOUS_VARIABLE, "").strip():
        texts.append(env[PREVIOUS_VARIABLE])
    key, *previous = map(Key.of, texts)
    return Sealer(key, *previous)


def _key_file(path: Path) -> str:
    """The text in the key file, which is made whole or not at all: a second process may be doing the same."""
    with suppress(FileNotFoundError):
        return _read(path)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # the other one was faster, and its key counts
            os.link(beside, path)
    finally:
        beside.unlink()
    return _read(path)


def _read(path: Path) -> str:
    text = path.read_text()
    if not text.strip():
        raise StoreError(f"The key file '{path}' is empty; put its content back, or remove the file.")
    return text


def _cipher(key: Key) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # 20 ms, and few installations need it

    return AESGCM(key.secret)
