"""What an OAuth client is told when its request is refused (RFC 6749, 5.2)."""

from __future__ import annotations

from collections.abc import Sequence

from nanobot.errors import NanobotError
from nanobot.server.exchange import Exchange
from nanobot.server.problems import Header

NO_STORE: Header = (b"pragma", b"no-cache")


class OAuthError(NanobotError):
    """A refused request; `error` is the word of the standard."""

    code = "oauth"

    def __init__(self, error: str, description: str, *, status: int = 400) -> None:
        super().__init__(description)
        self.error = error
        self.status = status


async def answer_oauth_error(http: Exchange, refused: OAuthError) -> None:
    headers: Sequence[Header] = [NO_STORE]
    if refused.status == 401:
        headers = [*headers, (b"www-authenticate", b'Basic realm="nanobot"')]
    body = {"error": refused.error, "error_description": str(refused)}
    await http.answer_json(body, status=refused.status, headers=headers)
