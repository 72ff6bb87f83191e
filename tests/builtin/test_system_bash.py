"""`bash`: what a command may do, how long it may take, and what becomes of its output."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import anyio
import pytest
from tests.peers.needed import needed

from nanobot.upstream.sandbox import find_sandbox

from .system_world import World

pytestmark = pytest.mark.anyio

needs_sandbox = needed(find_sandbox() is not None, "bubblewrap")


@pytest.fixture(params=[pytest.param("confined", marks=needs_sandbox), "unconfined"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "confined":
        return World(tmp_path)
    return World(tmp_path, sandbox=None, allow_unconfined=True)


@pytest.fixture
def confined(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize(
    ("command", "text", "status"),
    [
        ("echo hello", "hello\n", 0),
        ("true", "Command completed successfully with no output.", 0),
        ("echo out; echo err >&2; echo out", "out\nerr\nout\n", 0),
        ("echo failed; exit 3", "Exit code 3\nfailed\n", 3),
        ("kill -TERM $$", "Exit code 143\n", 143),
        ("kill -9 $$", "Exit code 137\n", 137),
        ("printf 'caf\\xe9'", "caf\ufffd", 0),
        ("cat; echo eof", "eof\n", 0),
        ("no-such-program", "Exit code 127\nbash: line 1: no-such-program: command not found\n", 127),
    ],
)
async def test_a_command_gives_its_output_and_its_status(
    world: World, command: str, text: str, status: int
) -> None:
    result = await world.result("bash", {"command": command})
    assert result == {
        "content": [{"type": "text", "text": text}],
        "structuredContent": {"exitCode": status},
    }


async def test_a_command_runs_in_the_working_folder_and_may_change_it(world: World) -> None:
    world.put("sub/x")
    assert await world.use("bash", command="pwd; touch made") == f"{world.folder}\n"
    assert (world.folder / "made").exists()
    assert await world.use("bash", command="pwd", workdir="sub") == f"{world.folder}/sub\n"
    assert "does not exist" in await world.fail("bash", command="pwd", workdir="gone")
    assert "outside the working folder" in await world.fail("bash", command="pwd", workdir="..")
    assert "command is required" in await world.fail("bash", command=" ")
    assert "timeout must be > 0" in await world.fail("bash", command="pwd", timeout=0)


async def test_secrets_of_the_environment_stay_here(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "OPENAI_API_KEY": "sk-canary", "FOO": "canary"}
    for sandbox in (find_sandbox(), None):
        world = World(tmp_path / str(sandbox is None), sandbox=sandbox, env=env, allow_unconfined=True)
        seen = await world.use(
            "bash", command="env; cat /proc/self/environ /proc/$PPID/environ | tr '\\0' '\\n'"
        )
        assert "LANG=C.UTF-8" in seen
        if sandbox is not None:
            assert "canary" not in seen
        assert "canary" not in await world.use("bash", command="env")


async def test_after_its_time_the_whole_tree_is_gone_and_what_it_said_is_kept(world: World) -> None:
    command = "trap '' TERM; (trap '' TERM; sleep 1000) & echo said; sleep 1000"
    told = await world.fail("bash", command=command, timeout=300)
    assert told == "command timed out after 300 ms\nsaid"
    await _nothing_runs_in(world.folder)


async def test_a_cancelled_call_leaves_no_process(world: World) -> None:
    async def call() -> None:
        await world.use("bash", command="touch started; sleep 1000 & sleep 1000")

    async with anyio.create_task_group() as calls:
        calls.start_soon(call)
        while not (world.folder / "started").exists():
            await anyio.lowlevel.checkpoint()
        calls.cancel_scope.cancel()
    await _nothing_runs_in(world.folder)


async def test_a_child_in_the_background_neither_delays_the_answer_nor_survives_it(world: World) -> None:
    assert await world.use("bash", command="sleep 1000 & echo done") == "done\n"
    await _nothing_runs_in(world.folder)


async def _nothing_runs_in(folder: Path) -> None:
    """Wait until the kernel has done away with what was killed."""
    with anyio.fail_after(5):
        while _processes_in(folder):
            await anyio.lowlevel.checkpoint()


def _processes_in(folder: Path) -> list[str]:
    """The processes of this machine whose current directory is `folder`."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").readlink() == folder:
                found.append((entry / "cmdline").read_text())
        except OSError:
            continue  # gone, or not ours
    return found


async def test_long_output_is_cut_in_the_middle_and_kept_whole_in_a_file(world: World) -> None:
    assert len(await world.use("bash", command="head -c 30000 /dev/zero | tr '\\0' x")) == 30_000

    shown = await world.use("bash", command="seq 1 20000")
    whole = "".join(f"{n}\n" for n in range(1, 20_001))
    head, note, tail = shown[:15_000], shown[15_001:-15_001], shown[-15_000:]
    assert (head, tail) == (whole[:15_000], whole[-15_000:])
    assert note.startswith(
        f"[{len(whole) - 30_000:,} characters omitted; full output: {world.home}/files/t1/"
    )
    log = note.removesuffix("]").rpartition(" ")[2]
    assert Path(log).read_text() == whole
    assert await world.use("read", file_path=log, limit=1) == "     1\t1\n"
    assert await world.use("bash", command=f"tail -n 1 {log}") == "20000\n"


async def test_an_endless_output_ends_with_its_time(world: World) -> None:
    told = await world.fail("bash", command="yes", timeout=500)
    assert told.startswith("command timed out after 500 ms\ny\ny\n")
    assert len(told) < 31_000


async def test_without_a_sandbox_bash_is_off_until_somebody_decides_otherwise(tmp_path: Path) -> None:
    world = World(tmp_path, sandbox=None)
    told = await world.fail("bash", command="touch made")
    assert "bash is off" in told
    assert "bubblewrap" in told
    assert not (world.folder / "made").exists()


# --- attempts to get out


@needs_sandbox
@pytest.mark.parametrize(
    "attempt",
    [
        "cat {base}/secret",
        "cat {folder}/../secret",
        "cat ~root/.bashrc ~/.ssh/id_rsa $HOME/.ssh/id_rsa",
        "ln -s {base}/secret link && cat link",
        "cat /proc/1/root{base}/secret",
        "cat /proc/self/root{base}/secret",
        "cat {home}/nanobot.db",
        "cat /etc/shadow",
        "ls /home/* /root/.b* /run/docker.sock /var/run/docker.sock",
        "echo x > /usr/bin/new || echo x > /etc/new",
        "mount -t tmpfs none /usr || mount --bind {folder} /usr",
        "unshare -rm mount -o remount,rw /usr",
        "chroot / true",
        "mknod disk b 254 0",
        "kill -9 {pid}",
        "ls /proc/{pid}",
        "exec 3<>/dev/tcp/127.0.0.1/{port}",
        "python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 2)\"",
        "python3 -c \"import socket; socket.create_connection(('169.254.169.254', 80), 2)\"",
        "python3 -c \"import socket; s = socket.socket(socket.AF_UNIX); s.connect('{base}/socket')\"",
        "python3 -c \"import socket; s = socket.socket(socket.AF_UNIX); s.connect('\\0nanobot-{port}')\"",
        "python3 -c \"import fcntl, os; fcntl.ioctl(os.open('/dev/tty', 2), 0x5412, b'x')\"",  # TIOCSTI
        "ipcrm -a; ipcs -m | grep -q 0x && echo shared",
        "cat /dev/mem || cat /dev/kmem || cat /dev/sda || cat /dev/vda",
        "cat /sys/class/net/*/address",
        "dmesg",
    ],
)
async def test_no_attempt_leads_out_of_the_sandbox(confined: World, attempt: str) -> None:
    (confined.base / "secret").write_text("treasure")
    (confined.home / "nanobot.db").write_text("treasure")
    with (
        socket.socket() as listener,
        socket.socket(socket.AF_UNIX) as file,
        socket.socket(socket.AF_UNIX) as name,
    ):
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        file.bind(str(confined.base / "socket"))
        name.bind(f"\0nanobot-{port}")
        for one in (listener, file, name):
            one.listen()
        places = {
            "base": confined.base,
            "folder": confined.folder,
            "home": confined.home,
            "pid": os.getpid(),
            "port": port,
        }
        for key, value in places.items():
            attempt = attempt.replace(f"{{{key}}}", str(value))
        result = await confined.result(
            "bash", {"command": f"( {attempt} ) && echo it worked", "timeout": 10_000}
        )
        told = result["content"][0]["text"]
        assert "treasure" not in told
        assert "it worked" not in told
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


@needs_sandbox
async def test_what_a_command_leaves_in_its_tmp_is_gone_with_it(confined: World) -> None:
    await confined.use("bash", command=f"echo x > /tmp/new; echo x > {confined.base}/new; cat /tmp/new")
    assert (await confined.use("bash", command="cat /tmp/new")).startswith("Exit code 1\n")
    assert not (confined.base / "new").exists()
    assert not Path("/tmp/new").exists()


@needs_sandbox
async def test_a_home_inside_the_working_folder_is_empty_for_commands(tmp_path: Path) -> None:
    world = World(tmp_path, home_name="work/.nanobot")
    (world.home / "nanobot.db").write_text("treasure")
    told = await world.use(
        "bash", command="ls -A .nanobot; cat .nanobot/nanobot.db; echo x > .nanobot/new; ls -A"
    )
    assert "treasure" not in told
    assert told.splitlines()[-1] == ".nanobot"
    assert sorted(file.name for file in world.home.iterdir()) == ["files", "nanobot.db"]


@needs_sandbox
async def test_conversations_do_not_see_each_others_files(confined: World) -> None:
    for thread in ("t1", "t2"):
        await confined.use("todoWrite", thread=thread, todos=[])
    other = confined.home / "files/t2/.nanobot/todo.json"
    assert other.exists()
    assert (await confined.use("bash", command=f"cat {other}")).startswith("Exit code 1\n")
