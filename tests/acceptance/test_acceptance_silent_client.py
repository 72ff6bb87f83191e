"""Clients of the older era that leave a question of a server unanswered: they hold nobody up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from tests.acceptance.test_acceptance_sampling import between, told

pytestmark = pytest.mark.anyio


async def silent(context: Any, params: Any = None) -> Any:
    await anyio.sleep_forever()


async def test_a_client_that_leaves_a_question_for_a_model_open_stops_no_clock(tmp_path: Path) -> None:
    callbacks = {"sampling_callback": silent}
    open_for_ever = between(
        tmp_path, "legacy", "legacy", callbacks=callbacks, sampling="client", toolTimeout=1
    )
    async with open_for_ever as connected:
        assert "did not answer within 1 s" in await told(connected)


@pytest.mark.parametrize("server", ["legacy", "modern"])
async def test_a_client_that_does_not_tell_its_roots_has_none_beside_those_of_the_operator(
    tmp_path: Path, server: str
) -> None:
    cases: list[tuple[tuple[str, ...], str]] = [((), "nowhere"), (("-r", str(tmp_path)), tmp_path.as_uri())]
    for run, expected in cases:
        async with between(
            tmp_path, "legacy", server, callbacks={"list_roots_callback": silent}, run=run
        ) as connected:
            [content] = (await connected.call_tool("where", {})).content
            assert isinstance(content, types.TextContent)
            assert content.text == expected
