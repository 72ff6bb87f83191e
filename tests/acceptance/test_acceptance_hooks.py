"""The page on hooks is right: its files, put beside one another, do what it says."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.hub.world import Server, tool

from nanobot.agent.engine import Input
from nanobot.app import App, open_app
from nanobot.config.load import Selection, load_config
from nanobot.hub.hooks.hook import HookRejected
from nanobot.wire.call import Call, Caller
from nanobot.wire.rpc import Payload

pytestmark = pytest.mark.anyio
PAGE = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text()
FILES = {
    match[2]: match[1]
    for match in re.finditer(r"^```\w+\n((?:#|//) ([\w.]+)\n.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The files of the page, and what its command makes."""
    assert sorted(FILES) == ["clerk.ts", "limits.py", "mask.ts", "nanobot.yaml", "receiver.py"]
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    [command] = re.findall(r"^```sh\n(.*?)\n```", PAGE, re.MULTILINE | re.DOTALL)
    script = command.replace("nanobot", f"{Path(sys.executable).parent}/nanobot", 1)
    subprocess.run(["sh", "-euc", script], cwd=tmp_path, check=True)
    assert "MessagePayload" in (tmp_path / "hooks.ts").read_text()
    return tmp_path


def desk() -> Server:
    content = {"content": [{"type": "text", "text": "Write to ada@example.com."}]}
    return Server("desk", tools=[tool("pay"), tool("find")], answers={"tools/call": content})


async def call(app: App, name: str, **arguments: Any) -> Any:
    params = Payload.of({"name": name, "arguments": arguments})
    return json.loads((await app.publisher.request("tools/call", params, Call())).raw)


async def test_the_page_on_hooks_does_what_it_says(home: Path) -> None:
    env = {"HOOK_SECRET": "s3cret", "HOME": str(home)}
    config = load_config(Selection(sources=[str(home)], env=env, cwd=home, home=home))
    server = desk()
    async with open_app(config, extra_sources={"desk": server}) as app:
        result = await call(app, "find")
        assert result["content"][0]["text"] == "Write to ***."
        assert result["_meta"]["ai.nanobot.hooks/mutations"]["response"]["reasons"] == ["addresses hidden"]

        with pytest.raises(HookRejected, match="over limit") as refusal:
            await call(app, "pay", amount=300)
        assert refusal.value.rpc_code == -32010
        assert [params["name"] for _, params in server.asked] == ["find"]

        greeted = await app.publisher.describe(Caller(client={"name": "probe"}))
        assert greeted.capabilities["experimental"]["ai.nanobot"]["session"] == {"greeting": "Hello, probe."}

        assert (await app.engine.once("clerk", Input(text="ping"))).text == "pong"
        answered = await app.engine.once("clerk", Input(text="What can you do?"))
        assert answered.stop == "completed"


def test_the_receiver_of_the_page_knows_a_genuine_signature(home: Path) -> None:
    receiver: dict[str, Any] = {}
    exec((home / "receiver.py").read_text(), receiver)
    header = "sha256=" + hmac.new(b"s3cret", b"{}", hashlib.sha256).hexdigest()
    assert receiver["is_genuine"]("s3cret", b"{}", header)
    assert not receiver["is_genuine"]("s3cret", b"{ }", header)
