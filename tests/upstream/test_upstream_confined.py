"""Servers as a configuration starts them: confined, and yet able to do what ordinary servers do."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.upstream.world import PEERS, SANDBOX, bad, running, use

from nanobot.config.model import McpServer, SandboxSettings
from nanobot.errors import UpstreamUnavailable
from nanobot.http import open_http
from nanobot.upstream.connection import Upstream
from nanobot.upstream.launcher import Launcher

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(SANDBOX is None, reason="needs bubblewrap"),
]

PROBE = str(PEERS / "probe_server.py")


@dataclass
class Place:
    """A person's home with secrets, a home of ours inside it, and a project."""

    person: Path
    ours: Path
    project: Path

    def server(self, *args: str, **settings: Any) -> McpServer:
        return McpServer(
            name="probe",
            command=sys.executable,
            args=(PROBE, *args),
            **{"base_dir": self.project, **settings},
        )

    def run(self, server: McpServer):
        return running(server, env={"HOME": str(self.person)}, home=self.ours)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    person = tmp_path / "person"
    for folder in (".ssh", ".aws", "documents", "project", ".nanobot/files"):
        (person / folder).mkdir(parents=True)
    for file in (".ssh/id_rsa", ".aws/credentials", ".netrc", "documents/diary", ".nanobot/nanobot.db"):
        (person / file).write_text("treasure")
    (person / ".nanobot/files/note").write_text("treasure")
    (person / "project/data").write_text("of the project")
    return Place(person, person / ".nanobot", person / "project")


async def attempt(upstream: Upstream, code: str) -> dict[str, Any]:
    return await use(upstream, "attempt", code=code)


def escapes(place: Place) -> dict[str, str]:
    """What a server must not be able to do; each sets `result` to something true if it succeeds."""
    read = "result = open({!r}).read()"
    write = "open({!r}, 'w').write('x'); result = True"
    outside = str(place.person.parent)
    return {
        "ssh key": read.format(f"{place.person}/.ssh/id_rsa"),
        "cloud credentials": read.format(f"{place.person}/.aws/credentials"),
        "netrc": read.format(f"{place.person}/.netrc"),
        "documents": read.format(f"{place.person}/documents/diary"),
        "our database": read.format(f"{place.ours}/nanobot.db"),
        "our files": read.format(f"{place.ours}/files/note"),
        "through a link": f"import os; os.symlink('{place.person}/.ssh', '/tmp/l');"
        "result = open('/tmp/l/id_rsa').read()",
        "through dots": read.format(f"{place.project}/../.ssh/id_rsa"),
        "shadow": read.format("/etc/shadow"),
        "machine id": read.format("/etc/machine-id"),
        "home of root": "import os; result = [n for n in os.listdir('/root') if n == '.profile']",
        "the folder around": f"import os; result = [n for n in os.listdir({outside!r}) if n != 'person']",
        "write the project": write.format(f"{place.project}/data"),
        "write the system": write.format("/usr/made"),
        "write etc": write.format("/etc/made"),
        "write the interpreter": write.format(f"{sys.prefix}/made"),
        "other processes": f"import os; result = os.path.exists('/proc/{os.getpid()}/environ') and "
        f"b'STRANGER' in open('/proc/{os.getpid()}/environ', 'rb').read()",
        "environment of the first process": "result = b'NANOBOT_TEST_CANARY' in "
        "open('/proc/1/environ', 'rb').read()",
        "our root through proc": "import os; result = os.path.exists("
        f"'/proc/1/root{place.person}/.ssh/id_rsa')",
        "count processes": "import os; result = len([n for n in os.listdir('/proc') if n.isdigit()]) > 8",
        "kill the program": f"import os, signal; os.kill({os.getpid()}, 0); result = {os.getpid()} > 8",
        "trace": "import ctypes; result = ctypes.CDLL(None, use_errno=True).ptrace(16, "
        f"{os.getpid()}, 0, 0) == 0",
        "mount": "import ctypes; result = ctypes.CDLL(None).mount(b'none', b'/mnt', b'tmpfs', 0, None) == 0",
        "remount": "import ctypes; result = ctypes.CDLL(None).mount(None, b'/usr', None, 4128, None) == 0",
        "device": "import os; result = os.open('/dev/mem', os.O_RDONLY)",
        "make a device": "import os, stat; os.mknod('/tmp/d', stat.S_IFBLK | 0o600, os.makedev(8, 0));"
        "result = open('/tmp/d', 'rb').read(1)",
        "core files": "import resource; resource.setrlimit(resource.RLIMIT_CORE, (1, 1)); result = True",
        "docker": "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/var/run/docker.sock');"
        "result = True",
        "become root": "result = [l for l in open('/proc/self/status') if l.startswith('CapEff') "
        "and int(l.split()[1], 16)]",
        "gain by set-user-id": "result = [l for l in open('/proc/self/status') if l.startswith('NoNewPrivs') "
        "and l.split()[1] == '0']",
        "type into the terminal": "result = open('/dev/tty', 'w').fileno() > 0",
    }


async def test_r23_a_probe_that_tries_to_get_out_gets_nothing(place: Place, monkeypatch) -> None:
    monkeypatch.setenv("NANOBOT_TEST_CANARY", "1")
    escaped: dict[str, Any] = {}
    async with place.run(place.server()) as upstream:
        for name, code in escapes(place).items():
            answer = await attempt(upstream, code)
            if answer.get("result"):
                escaped[name] = answer
        await attempt(upstream, f"open('{place.person.parent}/made', 'w')")  # a `/tmp` of its own, if any
    assert escaped == {}
    assert not (place.person.parent / "made").exists()
    assert (place.project / "data").read_text() == "of the project"


async def test_ordinary_things_work(place: Place) -> None:
    things = {
        "read its folder": "result = open('data').read() == 'of the project'",
        "temporary files": "import tempfile; result = tempfile.TemporaryFile().write(b'x') == 1",
        "a cache at home": "import os, pathlib; p = pathlib.Path.home() / '.cache/x'; p.parent.mkdir(); "
        "p.write_text('kept'); result = str(p)",
        "start programs": "import subprocess; result = subprocess.check_output(['sh', '-c', 'echo yes'])"
        ".decode()",
        "threads": "import threading; t = threading.Thread(target=print, args=('', ), kwargs={'file': "
        "__import__('sys').stderr}); t.start(); t.join(); result = True",
        "certificates": "import ssl; result = bool(ssl.create_default_context())",
        "its name": "import getpass, os, pwd; result = pwd.getpwuid(os.getuid()).pw_name",
        "randomness": "import os; result = len(os.urandom(8)) == 8",
        "shared memory": "import multiprocessing; result = bool(multiprocessing.Semaphore())",
    }
    for round in range(2):
        async with place.run(place.server()) as upstream:
            if round == 0:
                for name, code in things.items():
                    answer = await attempt(upstream, code)
                    assert answer.get("result"), (name, answer)
            kept = await attempt(
                upstream, "import os; result = open(os.path.expanduser('~/.cache/x')).read()"
            )
            assert kept == {"result": "kept"}
    assert not (place.person / ".cache").exists()


async def test_a_folder_that_an_argument_names_is_open_and_a_file_can_be_read(place: Place) -> None:
    documents = place.person / "documents"
    async with place.run(place.server(str(documents))) as upstream:
        wrote = await attempt(upstream, f"result = open('{documents}/new', 'w').write('x')")
        assert wrote == {"result": 1}
    async with place.run(place.server(f"--diary={documents}/diary")) as upstream:
        assert await attempt(upstream, f"result = open('{documents}/diary').read()") == {"result": "treasure"}
        assert "failed" in await attempt(upstream, f"open('{documents}/diary', 'w')")


async def test_arguments_open_neither_secrets_nor_homes_nor_our_own_state(place: Place) -> None:
    names = [place.person, place.person / ".ssh", place.ours, place.ours / "files", "/", "/etc"]
    async with place.run(place.server(*map(str, names))) as upstream:
        for file in (
            ".ssh/id_rsa",
            ".netrc",
            "documents/diary",
            ".nanobot/nanobot.db",
            ".nanobot/files/note",
        ):
            assert "failed" in await attempt(upstream, f"open('{place.person / file}')"), file
        assert "failed" in await attempt(upstream, "open('/etc/shadow')")


async def test_a_working_folder_that_was_written_down_can_be_changed_but_not_where_the_definition_is(
    place: Place,
) -> None:
    (place.project / "work").mkdir()
    async with place.run(place.server(cwd="work")) as upstream:
        assert await attempt(upstream, "result = open('new', 'w').write('x')") == {"result": 1}
    for settings in ({}, {"cwd": "."}, {"cwd": str(place.project)}):
        async with place.run(place.server(**settings)) as upstream:
            assert "failed" in await attempt(upstream, "open('nanobot.yaml', 'w')")
    sandbox = SandboxSettings(writable=(".",), readable=("~/documents",))
    async with place.run(place.server(sandbox=sandbox)) as upstream:
        assert await attempt(upstream, "result = open('new', 'w').write('x')") == {"result": 1}
        diary = place.person / "documents/diary"
        assert await attempt(upstream, f"result = open('{diary}').read()") == {"result": "treasure"}
        assert "failed" in await attempt(upstream, f"open('{diary}', 'w')")


async def test_a_server_that_lives_in_our_home_sees_its_program_and_not_our_state(place: Place) -> None:
    (place.ours / "helper.py").write_text("VALUE = 7")
    (place.ours / "nanobot.yaml").write_text("secret: treasure")
    for state in ("secret.py", "anything", "encryption.key"):
        (place.ours / state).write_text("treasure")
    async with place.run(place.server(base_dir=place.ours)) as upstream:
        assert await attempt(upstream, "import os; result = sorted(os.listdir())") == {
            "result": ["helper.py"]
        }
        wrote = await attempt(upstream, "result = open('own', 'w').write('x')")
        assert wrote == {"result": 1}
    assert not (place.ours / "own").exists()


async def test_sandbox_off_is_the_whole_machine(place: Place) -> None:
    async with place.run(place.server(sandbox=None)) as upstream:
        diary = place.person / "documents/diary"
        assert await attempt(upstream, f"result = open('{diary}').read()") == {"result": "treasure"}


async def test_without_a_confiner_a_server_is_refused_and_told_how_to_start_it(tmp_path: Path) -> None:
    async with open_http() as http, anyio.create_task_group() as group:

        async def open(server: McpServer) -> Upstream:
            launcher = Launcher(sandbox=None, home=tmp_path)
            env = {"PATH": os.environ["PATH"]}
            upstream = Upstream(server, http=http, env=env, version="1", launcher=launcher)
            await group.start(upstream.run)
            return upstream

        refused = await open(bad("good"))
        with pytest.raises(UpstreamUnavailable, match="`sandbox: off` for this server"):
            await refused.ready()
        assert refused.state.state == "failed"
        assert (await (await open(bad("good", sandbox=None))).ready()).server_info
        group.cancel_scope.cancel()


async def test_r24_without_a_network_nothing_is_reached(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        connect = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2); result = True"
        async with place.run(place.server()) as upstream:
            assert await attempt(upstream, connect) == {"result": True}
        async with place.run(place.server(sandbox=SandboxSettings(network="none"))) as upstream:
            assert "failed" in await attempt(upstream, connect)
            interfaces = "import socket; result = [name for _, name in socket.if_nameindex()]"
            assert await attempt(upstream, interfaces) == {"result": ["lo"]}
            for host, at in (("169.254.169.254", 80), ("1.1.1.1", 53)):
                code = f"import socket; socket.create_connection(('{host}', {at}), 2); result = True"
                assert "failed" in await attempt(upstream, code)


async def test_a_server_that_asks_for_time_to_leave_gets_it(place: Place) -> None:
    (place.project / "out").mkdir()
    left = place.project / "out/left"
    async with place.run(place.server(cwd="out")) as upstream:
        await attempt(
            upstream,
            "import os, signal\n"
            "def leave(*_):\n"
            f"    open({str(left)!r}, 'w').close()\n"
            "    os._exit(0)\n"
            "signal.signal(signal.SIGTERM, leave)\n",
        )
        await attempt_without_answer(upstream)
    assert left.exists()


async def attempt_without_answer(upstream: Upstream) -> None:
    with anyio.move_on_after(0.2):
        await attempt(upstream, "import signal; signal.pause()")


@pytest.mark.slow
@pytest.mark.parametrize(("network", "times"), [("host", 200), ("proxy", 25)])
async def test_r26_many_starts_and_stops_leave_nothing(place: Place, network: Any, times: int) -> None:
    def held() -> tuple[int, int, int]:
        below = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        return len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks()), len(below)

    server = place.server(sandbox=SandboxSettings(network=network))
    before: tuple[int, int, int] | None = None
    for _ in range(times):
        async with place.run(server) as upstream:
            await upstream.ready()
        before = before or held()
    assert held() == before


async def test_limits_hold_for_what_the_server_starts(place: Place) -> None:
    sandbox = SandboxSettings(memory_bytes=256 << 20, cpus=1)
    async with place.run(place.server(sandbox=sandbox)) as upstream:
        assert await attempt(upstream, "result = len(bytearray(10 << 20))") == {"result": 10 << 20}
        assert (await attempt(upstream, "bytearray(400 << 20)"))["failed"] == "MemoryError"
        assert await attempt(upstream, "import os; result = len(os.sched_getaffinity(0))") == {"result": 1}
