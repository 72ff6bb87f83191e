"""Servers as child processes: what they get, and what their faults cost."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest
from tests.upstream.world import PEERS, bad, running, until, use

from nanobot.aio import task_group
from nanobot.config.model import McpServer, SandboxSettings
from nanobot.errors import UpstreamTimeout, UpstreamUnavailable
from nanobot.wire.call import Call
from nanobot.wire.rpc import Payload, RpcError

pytestmark = pytest.mark.anyio


async def test_a_child_sees_path_home_user_and_its_own_variables_and_nothing_else(tmp_path: Path) -> None:
    server = bad("good", env={"${NAME}": "<${VALUE}>"}, cwd=str(tmp_path))
    async with running(server, env={"NAME": "OWN", "VALUE": "secret"}) as upstream:
        result = await use(upstream, "work")
    names = set(result["env"]) - {"LC_CTYPE", "PWD"}  # Python and bubblewrap set these themselves
    assert names == {"PATH", "HOME", "USER", "OWN"}
    assert result["env"]["OWN"] == "<secret>"
    assert result["cwd"] == str(tmp_path)


async def test_the_working_directory_is_that_of_the_declaring_document(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    async with running(bad("good", cwd="sub", base_dir=tmp_path)) as upstream:
        assert (await use(upstream, "work"))["cwd"] == str(tmp_path / "sub")


async def test_an_unset_variable_fails_the_server_and_names_server_field_and_variable(tmp_path: Path) -> None:
    marker = tmp_path / "started"
    server = McpServer(name="files", command="touch", args=(str(marker), "${NOT_SET}"))
    async with running(server) as upstream:
        with pytest.raises(UpstreamUnavailable) as failure:
            await upstream.ready()
        assert upstream.state.state == "failed"
    assert all(word in str(failure.value) for word in ("'files'", "args[1]", "NOT_SET"))
    assert not marker.exists()


async def test_a_missing_command_and_a_missing_directory_are_named() -> None:
    async with running(McpServer(name="x", command="no-such-program")) as upstream:
        with pytest.raises(UpstreamUnavailable, match="'no-such-program' was not found"):
            await upstream.ready()
    async with running(bad("good", cwd="/nowhere/at-all")) as upstream:
        with pytest.raises(UpstreamUnavailable, match="/nowhere/at-all"):
            await upstream.ready()


async def test_a_server_that_exits_at_start_is_told_with_its_status_and_last_words() -> None:
    async with running(bad("exits")) as upstream:
        with pytest.raises(UpstreamUnavailable, match=r"exited with status 4(?s:.*)no configuration"):
            await upstream.ready()
        assert upstream.state.state == "backoff"
        with pytest.raises(UpstreamUnavailable, match="next attempt in"):
            await upstream.listing("tools")  # at once, without a second attempt


async def test_a_server_that_never_answers_the_handshake_is_given_up_after_its_time() -> None:
    async with running(bad("mute", timeout_ms=300)) as upstream:
        with pytest.raises(UpstreamUnavailable, match="timeoutMs"):
            await upstream.ready()


async def test_a_death_in_the_middle_of_a_call_is_not_answered_by_a_second_call() -> None:
    async with running(bad("dies", env={"TOKEN": "canary-12345"})) as upstream:
        with pytest.raises(UpstreamUnavailable) as failure:
            await use(upstream, "work")
        assert failure.value.maybe_sent
        assert "status 3" in str(failure.value)
        assert "token ***" in str(failure.value)
        assert "canary" not in str(failure.value)
        assert len(await upstream.listing("tools")) == 1  # connected again, in one attempt
        assert upstream.state.restarts == 1


async def test_watchers_hear_of_all_lists_when_a_server_came_back(tmp_path: Path) -> None:
    heard: list[str] = []
    async with running(bad("dies-once", str(tmp_path / "died"), cwd=str(tmp_path))) as upstream:
        stop = upstream.watch(heard.append)
        await upstream.ready()
        assert heard == []
        with pytest.raises(UpstreamUnavailable):
            await use(upstream, "work")
        await upstream.ready()
        assert heard == ["tools", "prompts", "resources", "templates"]
        stop()
        assert (await use(upstream, "work"))["count"] == 1


async def test_a_server_that_crashes_again_and_again_is_tried_less_and_less_often() -> None:
    async with running(bad("dies"), backoff_s=(1000.0,)) as upstream:
        for _ in range(2):
            with pytest.raises(UpstreamUnavailable):
                await use(upstream, "work")
        with pytest.raises(UpstreamUnavailable, match=r"next attempt in (1000|999) s"):
            await upstream.ready()


async def test_a_failed_server_is_connected_after_its_pause(tmp_path: Path) -> None:
    script = tmp_path / "server"
    server = McpServer(name="late", command=str(script), sandbox=SandboxSettings(readable=(str(PEERS),)))
    async with running(server, backoff_s=(0.01,)) as upstream:
        with pytest.raises(UpstreamUnavailable):
            await upstream.ready()
        script.write_text(f"#!/bin/sh\nexec {sys.executable} {Path(bad('x').args[0])} good\n")
        script.chmod(0o755)
        came_back = anyio.Event()
        upstream.watch(lambda kind: came_back.set())
        with anyio.fail_after(10):
            await came_back.wait()
        assert upstream.state.state == "ready"
        assert upstream.state.last_error == ""


@pytest.mark.parametrize("mode", ["garbage", "long", "noisy", "twice"])
async def test_noise_of_any_kind_costs_nothing_but_itself(mode: str) -> None:
    async with running(bad(mode)) as upstream:
        assert [(await use(upstream, "work"))["count"] for _ in range(2)] == [1, 2]


async def test_a_call_without_answer_ends_after_its_time_and_the_server_stays() -> None:
    async with running(bad("hangs", tool_timeout_s=0.2)) as upstream:
        with pytest.raises(UpstreamTimeout, match=r"within 0.2 s"):
            await use(upstream, "work")
        assert len(await upstream.listing("tools")) == 1


@pytest.mark.parametrize("mode", ["oversized", "oversized-id-last"])
async def test_an_answer_over_the_limit_fails_its_call_at_once_and_the_server_stays(mode: str) -> None:
    async with running(bad(mode)) as upstream:
        with pytest.raises(RpcError, match="longer than"), anyio.fail_after(30):
            await use(upstream, "work")
        assert upstream.state.state == "ready"


async def test_a_hanging_server_delays_no_other() -> None:
    async with running(bad("hangs")) as hanging, running(bad("good")) as good, task_group() as group:
        group.start_soon(use, hanging, "work")
        assert [(await use(good, "work"))["count"] for _ in range(3)] == [1, 2, 3]
        group.cancel_scope.cancel()


async def test_an_error_of_the_server_arrives_as_it_was_sent() -> None:
    async with running(bad("good")) as upstream:
        with pytest.raises(RpcError, match="unknown") as refusal:
            await upstream.request("prompts/get", Payload.of({"name": "x"}), Call())
        assert refusal.value.rpc_code == -32601


async def test_revisions_are_agreed_on_or_both_sides_are_named() -> None:
    async with running(bad("old")) as upstream:
        assert (await upstream.ready()).version == "2024-11-05"
    for mode, theirs in (("alien", "1999-01-01"), ("modern-only", "2030-01-01")):
        async with running(bad(mode)) as upstream:
            with pytest.raises(UpstreamUnavailable, match=f"{theirs}.*2026-07-28"):
                await upstream.ready()


async def test_lists_are_read_to_the_last_page_and_keep_unknown_members() -> None:
    async with running(bad("pages")) as upstream:
        entries = await upstream.listing("tools")
    assert [entry.key for entry in entries] == ["work", "rest"]
    assert entries[0].definition.object()["x-unknown"] == {"kept": True}


@pytest.mark.parametrize(("mode", "length"), [("endless", 1000), ("cycle", 2), ("nameless", 1)])
async def test_a_list_without_end_is_cut_and_bad_entries_are_skipped(mode: str, length: int) -> None:
    async with running(bad(mode)) as upstream:
        assert len(await upstream.listing("tools")) == length
        assert await upstream.listing("prompts") == []  # not announced, so not asked for


async def test_nothing_a_server_started_is_left_when_it_is_stopped(tmp_path: Path) -> None:
    async with running(bad("family", str(tmp_path))) as upstream:
        await upstream.ready()
        await until(lambda: len(marked(tmp_path)) == 3)
    assert marked(tmp_path) == []


async def test_r26_many_starts_through_a_shell_leave_nothing_behind(tmp_path: Path) -> None:
    script = f'{sys.executable} {bad("x").args[0]} "$0" "$1"; true'  # a wrapper that stays, like npx
    server = McpServer(name="wrapped", command="sh", args=("-c", script, "family", str(tmp_path)))
    for _ in range(20):
        async with running(server) as upstream:
            await upstream.ready()
    assert marked(tmp_path) == []


async def test_nothing_is_left_after_kill_9_of_the_program_that_used_it(tmp_path: Path) -> None:
    script = (
        "import anyio, sys\n"
        "from tests.upstream.world import bad, running\n"
        "async def main():\n"
        "    async with running(bad('family', sys.argv[1])) as upstream:\n"
        "        await upstream.ready()\n"
        "        print('ready', flush=True)\n"
        "        await anyio.sleep_forever()\n"
        "anyio.run(main)\n"
    )
    async with await anyio.open_process([sys.executable, "-c", script, str(tmp_path)]) as program:
        assert program.stdout is not None
        assert (await program.stdout.receive()).startswith(b"ready")
        await until(lambda: len(marked(tmp_path)) == 3)
        program.kill()
    await until(lambda: not marked(tmp_path), within_s=5)


def marked(path: Path) -> list[int]:
    """The living processes, wardens aside, whose command line names `path`.

    A process that has only just begun its program has none yet, so what should be there is waited for.
    """
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            around = (b"warden.py", b"bwrap", b"import anyio")
            if str(path).encode() in line and not any(name in line for name in around):
                found.append(int(entry.name))
    return found
