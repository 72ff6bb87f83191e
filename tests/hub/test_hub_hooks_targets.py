"""What hooks can be: scripts, Python functions, web addresses; each with its ways to fail."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.hub.hooks_world import Server, world
from tests.peers.hook_endpoint import hook_endpoint

from nanobot.hub.hooks.hook import HookRejected
from nanobot.hub.hooks.hooks import Timeouts

pytestmark = pytest.mark.anyio

REQUEST = "tools/call?direction=request"
RESPONSE = "tools/call?direction=response"
SOON = Timeouts(script_s=0.3, webhook_s=0.3)

MASK = """
import type { MessageHook } from "./hooks";
import { masked } from "./lib/mask";

enum Why { Private = "addresses masked" }

const hook: MessageHook = async ({ message }) => {
  for (const block of message.result!.content as { type: string; text?: string }[]) {
    if (block.text !== undefined) block.text = masked(block.text);
  }
  console.log("masked for", process.env.TEAM, process.env.HOME);
  return { mutated: true, message, reason: Why.Private };
};
export default hook;
"""


def answers(text: str) -> Server:
    return Server("pay", answers={"tools/call": {"content": [{"type": "text", "text": text}]}})


async def reason(w: Any) -> str:
    with pytest.raises(HookRejected) as refusal:
        await w.call("pay")
    return refusal.value.reason


async def test_a_typescript_hook_masks_addresses_in_results(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "mask.ts").write_text(
        "export const masked = (t: string): string => t.replace(/[\\w.+-]+@[\\w.-]+\\w/g, '***');"
    )
    (tmp_path / "mask.ts").write_text(MASK)
    caplog.set_level(logging.INFO, "nanobot.hub.hooks")
    settings = {"env": {"TEAM": "${TEAM}"}}
    async with world(
        tmp_path,
        {RESPONSE: "./mask.ts"},
        answers("Ask ada@example.com or bob.b@example.org."),
        settings=settings,
        env={"TEAM": "blue", "HOME": "/root"},
    ) as w:
        result = await w.call("find")
    assert result["content"][0]["text"] == "Ask *** or ***."
    assert result["_meta"]["ai.nanobot.hooks/mutations"]["response"]["reasons"] == ["addresses masked"]
    [said] = [record for record in caplog.records if record.message == "hook says"]
    assert said.__dict__["text"] == "masked for blue undefined"


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("a.js", "module.exports = () => ({accept: false, reason: 'said'})"),
        ("a.js", "export default async function () { return {accept: false, reason: 'said'} }"),
        ("a.mjs#deny", "export const deny = () => ({accept: false, reason: 'said'})"),
        ("a.ts#deny", "export function deny(): object { return {accept: false, reason: 'said' as string} }"),
    ],
)
async def test_scripts_export_their_hooks(tmp_path: Path, file: str, source: str) -> None:
    (tmp_path / file.partition("#")[0]).write_text(source)
    async with world(tmp_path, {REQUEST: f"./{file}"}) as w:
        assert await reason(w) == "said"


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("export default () => { throw new TypeError('secret') }", "threw TypeError"),
        ("export default async () => { throw 'secret' }", "threw Error"),
        ("export default () => new Promise(() => {})", "never happens"),
        ("export default () => 'text'", "not valid"),
        ("export const other = 1", "exports no function 'default'"),
        ("export default () => {", "cannot be loaded"),
        ("throw new Error('secret')", "threw Error"),
        ("import os from 'os'; export default () => os", "threw Error"),
        ("import { x } from '../outside'; export default () => x", "threw Error"),
        ("export default () => { while (true) {} }", "took longer than 0.3 s"),
        ("export default () => { const f = () => f(); return f() }", "threw RangeError"),
        ("export default () => fetch('http://127.0.0.1')", "threw ReferenceError"),
    ],
)
async def test_a_script_that_fails_stops_the_message_and_does_well_again_afterwards(
    tmp_path: Path, source: str, complaint: str
) -> None:
    (tmp_path / "a.js").write_text(source)
    (tmp_path.parent / "outside.js").write_text("export const x = 1")
    async with world(tmp_path, {REQUEST: "./a.js"}, timeouts=SOON) as w:
        said = await reason(w)
        assert complaint in said
        assert "secret" not in said
        (tmp_path / "a.js").write_text("export default () => ({accept: false, reason: 'well again'})")
        assert await reason(w) == "well again"


async def test_a_script_keeps_its_state_until_it_or_what_it_imports_changes(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text(
        "import { say } from './b.js'; let n = 0; export default () => ({accept: false, reason: say(++n)})"
    )
    (tmp_path / "b.js").write_text("export const say = (n) => `call ${n}`")
    async with world(tmp_path, {REQUEST: "./a.js"}) as w:
        assert [await reason(w), await reason(w)] == ["call 1", "call 2"]
        (tmp_path / "b.js").write_text("export const say = (n) => `number ${n}`")
        assert [await reason(w), await reason(w)] == ["number 1", "number 2"]
        (tmp_path / "b.js").unlink()
        assert "threw Error" in await reason(w)


async def test_calls_of_a_script_at_once_do_not_mix(tmp_path: Path) -> None:
    (tmp_path / "a.ts").write_text(
        "export default async (p: any) => {"
        "  await null; return { ...p, mutated: true, reason: p.message.params.name }; }"
    )
    reasons: dict[str, Any] = {}
    async with world(tmp_path, {REQUEST: "./a.ts"}) as w, anyio.create_task_group() as group:

        async def one(name: str) -> None:
            result = await w.call(name)
            reasons[name] = result["_meta"]["ai.nanobot.hooks/mutations"]["request"]["reasons"]

        for number in range(20):
            group.start_soon(one, f"tool-{number}")
    assert reasons == {f"tool-{n}": [f"tool-{n}"] for n in range(20)}


async def test_a_python_hook_denies_a_call(tmp_path: Path) -> None:
    (tmp_path / "guard.py").write_text(
        """
import dataclasses

@dataclasses.dataclass
class Limit:
    euros: int = 100

def check(payload):
    amount = payload["message"]["params"]["arguments"].get("amount", 0)
    payload["message"]["params"]["arguments"]["amount"] = -1  # without saying so: does not count
    if amount > Limit().euros:
        return {"accept": False, "reason": f"{amount} is over {Limit().euros}"}

async def later(payload):
    return {"accept": True, "reason": "fine"}
"""
    )
    pay = Server("pay")
    async with world(tmp_path, {REQUEST: ["./guard.py#check", "./guard.py#later"]}, pay) as w:
        with pytest.raises(HookRejected, match="300 is over 100"):
            await w.call("pay", {"amount": 300})
        await w.call("pay", {"amount": 3})
    assert pay.asked == [("tools/call", {"name": "pay", "arguments": {"amount": 3}})]
    assert not (tmp_path / "__pycache__").exists()


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("def hook(p): raise ValueError('secret')", "raised ValueError"),
        ("async def hook(p): raise ValueError('secret')", "raised ValueError"),
        ("import sys\ndef hook(p): sys.exit(1)", "raised SystemExit"),
        ("import sys\nasync def hook(p): sys.exit(1)", "raised SystemExit"),
        ("import sys; sys.exit(1)", "raised SystemExit"),
        ("def hook(p): return 3", "not valid"),
        (
            "def hook(p): return {'mutated': True, 'message': {'params': {'a': {1, 2} and object()}}}",
            "no JSON",
        ),
        ("other = 1", "no function 'hook'"),
        ("def hook(p", "raised SyntaxError"),
        ("import sys; sys.modules['nowhere']", "raised KeyError"),
        ("import anyio\nasync def hook(p): await anyio.sleep_forever()", "took longer than 0.3 s"),
        ("import threading\ndef hook(p): threading.Event().wait()", "took longer than 0.3 s"),
    ],
)
async def test_a_python_hook_that_fails_stops_the_message(
    tmp_path: Path, source: str, complaint: str
) -> None:
    (tmp_path / "a.py").write_text(source)
    async with world(tmp_path, {REQUEST: "./a.py#hook"}, timeouts=SOON) as w:
        said = await reason(w)
        assert complaint in said
        assert "secret" not in said
        (tmp_path / "a.py").write_text("def hook(p): return {'accept': False, 'reason': 'mended'}")
        os.utime(tmp_path / "a.py", ns=(1, 1))  # also a file that is older than before is another one
        assert await reason(w) == "mended"


def test_a_python_hook_that_never_returns_does_not_keep_the_program_from_ending(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import threading\ndef hook(p): threading.Event().wait()")
    (tmp_path / "main.py").write_text(
        """
import sys, anyio
from pathlib import Path
from nanobot.hub.hooks.hook import HookFailed
from nanobot.hub.hooks.python import PythonFile

async def main():
    try:
        await PythonFile(Path(sys.argv[1])).call("hook", {}, timeout_s=0.2)
    except HookFailed as e:
        print(e)

anyio.run(main)
"""
    )
    command = [sys.executable, str(tmp_path / "main.py"), str(tmp_path / "a.py")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "it took longer than 0.2 s\n"


async def test_a_web_hook_is_sent_the_payload_signed(tmp_path: Path) -> None:
    def reply(payload: Any) -> tuple[int, bytes]:
        payload["message"]["params"]["arguments"] = {"amount": 1}
        return 200, json.dumps({**payload, "mutated": True, "reason": "less"}).encode()

    pay = Server("pay")
    with hook_endpoint(reply) as endpoint:
        hooks = {REQUEST: f"{endpoint.url}/hook"}
        settings = {"secret": "${HOOK_SECRET}"}
        env = {"HOOK_SECRET": "s3cret"}
        async with world(tmp_path, hooks, pay, settings=settings, env=env) as w:
            await w.call("pay", {"amount": 3})
    [(headers, body)] = endpoint.received
    assert headers["content-type"] == "application/json"
    assert headers["x-nanobot-hook"] == "tools/call"
    expected = hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()
    assert headers["x-nanobot-signature"] == f"sha256={expected}"
    assert json.loads(body)["message"]["params"]["arguments"] == {"amount": 3}
    assert pay.asked[0][1]["arguments"] == {"amount": 1}


@pytest.mark.parametrize(
    ("reply", "hangs", "complaint"),
    [
        ((204, b""), False, ""),
        ((200, b"{}"), False, ""),
        ((200, b'{"accept": false, "reason": "no"}'), False, "no"),
        ((200, b"[]"), False, "no JSON object"),
        ((200, b"<html>"), False, "no JSON"),
        ((200, b'{"x": "' + b"x" * (1 << 20) + b'"}'), False, "more than 1048576 bytes"),
        ((302, b""), False, "HTTP status 302"),
        ((500, b"{}"), False, "HTTP status 500"),
        ((200, b"{}"), True, "stayed silent for too long"),
    ],
)
async def test_what_the_answer_of_a_web_hook_leads_to(
    tmp_path: Path, reply: tuple[int, bytes], hangs: bool, complaint: str
) -> None:
    with hook_endpoint(lambda payload: reply, hangs=hangs) as endpoint:
        async with world(tmp_path, {REQUEST: endpoint.url}, timeouts=SOON) as w:
            if complaint:
                assert complaint in await reason(w)
            else:
                await w.call("pay")
        async with world(tmp_path, {REQUEST: f"!optional:{endpoint.url}"}, timeouts=SOON) as w:
            if complaint == "no":
                assert await reason(w) == "no"
            else:
                await w.call("pay")
                assert w.statuses == [(f"!optional:{endpoint.url}", "skipped" if complaint else "ok")]
    assert "x-nanobot-signature" not in endpoint.received[0][0]


async def test_a_method_from_a_stranger_stays_within_its_header(tmp_path: Path) -> None:
    with hook_endpoint(lambda payload: (204, b"")) as endpoint:
        async with world(tmp_path, {"*?direction=request": endpoint.url}) as w:
            with pytest.raises(Exception, match="odd"):
                await w.ask("pay", "odd\r\nX-Evil: 1", {})
    [(headers, _)] = endpoint.received
    assert headers["x-nanobot-hook"] == "odd%0D%0AX-Evil:%201"
    assert "x-evil" not in headers


async def test_a_web_hook_that_is_not_there(tmp_path: Path) -> None:
    with hook_endpoint(lambda payload: (204, b"")) as endpoint:
        pass
    async with world(tmp_path, {REQUEST: endpoint.url}) as w:
        assert "Cannot connect" in await reason(w)


def test_the_vendored_script_is_the_one_that_is_described() -> None:
    vendor = Path(__file__).parents[2] / "src/nanobot/hub/hooks/vendor"
    digest = hashlib.sha256((vendor / "sucrase.js").read_bytes()).hexdigest()
    assert digest in (vendor / "README.md").read_text()


async def test_an_answer_that_changes_the_message_into_none_closes_the_way(tmp_path: Path) -> None:
    hooks = "def changed(p): return {'mutated': True, 'message': None}\n"
    hooks += "def untouched(p): return {'mutated': False, 'message': None}\n"
    hooks += "def refused(p): return {'accept': False, 'mutated': True, 'message': None, 'reason': 'no'}\n"
    (tmp_path / "h.py").write_text(hooks)
    for function, said in (("changed", "says that there is none"), ("refused", "no")):
        async with world(tmp_path, {REQUEST: f"./h.py#{function}"}) as w:
            with pytest.raises(HookRejected, match=said):
                await w.call("pay")
    async with world(tmp_path, {REQUEST: "./h.py#untouched"}) as w:
        await w.call("pay")
