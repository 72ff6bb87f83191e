"""Who asks, and the seam through which a bearer token becomes somebody."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from nanobot.errors import NanobotError

MAX_ACCOUNT: Final = 255

Role = Literal["owner", "user"]
"""`owner`: whoever runs this installation; its account is that of work without a login."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody who has proved who they are. `scheme` is how; `expires_at` (seconds since the epoch) is when
    that proof ends, if it does."""

    account: str
    scheme: str
    role: Role = "user"
    name: str = ""
    email: str = ""
    expires_at: float | None = None
    token: str = field(default="", repr=False, compare=False)
    """Of the identity provider that signed them in, where that was done through us."""


class NotSignedIn(NanobotError):
    """A request without a credential, or with one that does not count. The message is for anybody."""

    code = "not_signed_in"

    def __init__(self, reason: str, *, is_missing: bool = False) -> None:
        super().__init__(reason)
        self.is_missing = is_missing


class AuthUnavailable(NanobotError):
    """Whoever decides about this credential cannot be asked now; it may be good."""

    code = "auth_unavailable"


class TokenScheme(Protocol):
    """One way to know a bearer token."""

    async def recognise(self, token: str) -> Principal | None:
        """Whose token this is; None if it is of another kind.

        Raises `NotSignedIn` for one of this kind that does not count, and `AuthUnavailable`.
        """
        ...


def named_account(text: object) -> str:
    """`text` as the name of an account. Raises `NotSignedIn`: without a name all would share one account."""
    name = text.strip() if isinstance(text, str) else ""
    if not name or len(name) > MAX_ACCOUNT or not name.isprintable():
        raise NotSignedIn("The credential does not say whose it is.")
    return name
