"""Characters nobody sees are pointed out when a tool is first seen."""

from __future__ import annotations

import pytest
from tests.hub.world import Server, config, refs, running, tool

from nanobot.hub.hidden import hidden_characters
from nanobot.wire.call import NOBODY
from nanobot.wire.rpc import Payload


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b'{"description":"plain \\u00e9"}', []),
        ('{"description":"naïve 👩‍👩‍👧 ❤️ می‌خواهم"}'.encode(), []),
        ('{"description":"a\u202eb\u200b"}'.encode(), ["U+200B", "U+202E"]),
        (b'{"description":"a\\u202eb"}', ["U+202E"]),
        (b'{"inputSchema":{"properties":{"a":{"title":"\\udb40\\udc41"}}}}', ["U+E0041"]),
    ],
)
def test_only_what_hides_is_found(raw: bytes, found: list[str]) -> None:
    assert hidden_characters(Payload(raw)) == found


@pytest.mark.anyio
async def test_r30_hidden_characters_are_flagged_at_first_sight_and_not_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("s", [tool("t", description="harmless\u2062")])
    async with running(config(), server) as hub:
        for _ in range(2):
            await hub.tools(refs("s"))
        server.tools.append(tool("u"))
        server.says_changed("tools")
        assert len((await hub.view("tools", refs("s")).current(NOBODY, for_news=True)).items) == 2
    assert [(r.message, r.__dict__["characters"]) for r in caplog.records] == [
        ("a tool's definition holds invisible characters", ["U+2062"])
    ]
