"""The secret of the person who runs this: in a file that only they can read, and once in a link."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from hmac import compare_digest
from pathlib import Path
from typing import Final

from nanobot.errors import ConfigError
from nanobot.server.auth.principal import Principal

FILE: Final = "launch-secret"
SCHEME: Final = "launch-secret"

OWNER: Final = Principal(account="", scheme=SCHEME, role="owner")


class LaunchSecret:
    """Knows the secret as a bearer token, and one code that opens one browser session."""

    def __init__(self, secret: str, new_code: Callable[[], str] = lambda: secrets.token_urlsafe(32)) -> None:
        self.proof: str = hashlib.sha256(secret.encode()).hexdigest()
        """What a browser session rests on: it ends when the file gets another secret."""
        self.code = new_code()
        """For the link that is shown at the start; "" once it was used."""

    async def recognise(self, token: str) -> Principal | None:
        return await self.by_digest(hashlib.sha256(token.encode()).hexdigest())

    async def by_digest(self, digest: str) -> Principal | None:
        return OWNER if compare_digest(digest, self.proof) else None

    def spend_code(self, code: str) -> bool:
        """Whether this is the code of the link. It works once."""
        if not self.code or not compare_digest(code.encode(), self.code.encode()):
            return False
        self.code = ""
        return True


def load_launch_secret(home: Path) -> LaunchSecret:
    """The secret in `<home>/launch-secret`, made (mode 0600) if there is none. Raises `ConfigError`."""
    path = home / FILE
    try:
        with suppress(FileExistsError):
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
        descriptor = os.open(path, os.O_RDONLY)
        with os.fdopen(descriptor) as file:
            if os.name != "nt" and os.fstat(descriptor).st_mode & 0o077:
                raise ConfigError(f"Others may read '{path}': remove the file, and a new secret is made.")
            secret = file.read().strip()
    except OSError as e:
        raise ConfigError(f"The launch secret '{path}' cannot be used: {e.strerror or e}.") from e
    if len(secret) < 16:
        raise ConfigError(f"'{path}' holds no secret: remove the file, and a new one is made.")
    return LaunchSecret(secret)
