"""Servers in containers: the command line that an engine gets, seen by one that only writes it down."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from tests.peers.programs import free_port, serving
from tests.upstream.test_upstream_started import script
from tests.upstream.world import PEERS, running, text_of, until, use

from nanobot.config.model import ImageSource, McpServer, SandboxSettings
from nanobot.errors import UpstreamUnavailable
from nanobot.upstream.container import instance_id, is_dead

pytestmark = pytest.mark.anyio

PROBE = str(PEERS / "probe_server.py")


@dataclass
class Docker:
    folder: Path
    home: Path

    def calls(self, verb: str) -> list[dict[str, Any]]:
        text = (self.folder / "calls.jsonl").read_text()
        return [call for call in map(json.loads, text.splitlines()) if call["words"][0] == verb]

    def run(self, server: McpServer, **env: str):
        path = f"{self.folder}:{os.environ['PATH']}"
        return running(server, env={"PATH": path, **env}, home=self.home)


@pytest.fixture
def docker(tmp_path: Path) -> Docker:
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "docker"
    program.write_text(f"#!{sys.executable}\n" + (PEERS / "fake_docker.py").read_text())
    program.chmod(0o755)
    return Docker(folder, tmp_path / "home")


def contained(**settings: Any) -> McpServer:
    common: dict[str, Any] = {
        "name": "box",
        "in_container": True,
        "image": "example/image:1",
        "command": sys.executable,
        "args": (PROBE,),
    }
    return McpServer(**common | settings)


async def test_the_command_line_closes_everything_that_need_not_be_open(
    docker: Docker, tmp_path: Path
) -> None:
    server = contained(
        env={"TOKEN": "${SECRET}", "PATH": os.environ["PATH"]},
        workdir="/data",
        sandbox=SandboxSettings(
            network="none", memory_bytes=1 << 30, cpus=1.5, pids=50, readable=("/usr",), writable=("/opt",),
            extra_args=("--gpus", "all"),
        ),
    )  # fmt: skip
    async with docker.run(server, SECRET="canary-12345") as upstream:
        seen = await use(upstream, "attempt", code="import os; result = os.environ['TOKEN']")
        assert seen == {"result": "canary-12345"}
    (call,) = docker.calls("run")
    words = call["words"]
    name = words[words.index("--name") + 1]
    assert re.fullmatch("nanobot-[0-9a-f]{8}", name)
    caches = docker.home / "servers/box"
    assert words == [
        "run", "-i", "--rm", "--init", "--name", name, "--label", f"ai.nanobot.instance={instance_id()}",
        "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only", "--tmpfs", "/tmp",
        "--pids-limit", "50", "--cpus", "1.5", "--memory", str(1 << 30), "--network", "none",
        "-u", f"{os.getuid()}:{os.getgid()}",
        "-v", f"{caches}/.cache:/mcp/.cache", "-v", f"{caches}/.npm:/mcp/.npm",
        "-v", f"{caches}/go/pkg:/mcp/go/pkg", "-v", "/usr:/usr:ro", "-v", "/opt:/opt", "-w", "/data",
        "-e", "HOME=/mcp", "-e", "TOKEN", "-e", f"PATH={os.environ['PATH']}",
        "--gpus", "all", "--", "example/image:1", sys.executable, PROBE,
    ]  # fmt: skip
    assert call["env"]["TOKEN"] == "canary-12345"
    assert "STRANGER" not in call["env"]
    assert [call["words"] for call in docker.calls("rm")] == [["rm", "-f", name]]


async def test_without_settings_there_are_limits_all_the_same(docker: Docker) -> None:
    async with docker.run(contained()) as upstream:
        await upstream.ready()
    words = " ".join(docker.calls("run")[0]["words"])
    for limit in ("--pids-limit 512", "--cpus 2", f"--memory {2 << 30}"):
        assert limit in words
    assert "--network" not in words


async def test_podman_keeps_the_user(docker: Docker) -> None:
    (docker.folder / "docker").rename(docker.folder / "podman")
    async with docker.run(contained(), NANOBOT_CONTAINER_ENGINE="podman") as upstream:
        await upstream.ready()
    words = docker.calls("run")[0]["words"]
    assert words[words.index("--userns") + 1] == "keep-id"


async def test_a_server_that_serves_http_gets_its_ports_published(docker: Docker, tmp_path: Path) -> None:
    plain = script(tmp_path)
    server = contained(args=plain.args, url=plain.url, name="web")
    async with docker.run(server) as upstream:
        assert text_of(await use(upstream, "echo", text="boxed")) == "boxed"
    words = docker.calls("run")[0]["words"]
    port = words[-1]
    assert words[words.index("-p") + 1] == f"127.0.0.1:{port}:{port}"


async def test_without_an_engine_or_an_image_it_is_refused_and_never_run_openly(
    docker: Docker, tmp_path: Path
) -> None:
    marker = tmp_path / "started"
    server = contained(command="touch", args=(str(marker),))
    for env, words in (
        ({"NANOBOT_CONTAINER_ENGINE": "no-such-engine"}, "no-such-engine"),
        ({"PATH": str(tmp_path)}, "docker or podman"),
    ):
        async with docker.run(server, **env) as upstream:
            with pytest.raises(UpstreamUnavailable, match=words):
                await upstream.ready()
            assert upstream.state.state == "failed"
    async with docker.run(contained(image="")) as upstream:
        with pytest.raises(UpstreamUnavailable, match="NANOBOT_IMAGE"):
            await upstream.ready()
    assert not marker.exists()


async def test_a_dockerfile_is_built_once_and_a_broken_one_is_told(docker: Docker) -> None:
    server = contained(image="", dockerfile="FROM ${NANOBOT_IMAGE}\nRUN true\n")
    for _ in range(2):
        async with docker.run(server, NANOBOT_IMAGE="base/image:2") as upstream:
            await upstream.ready()
    (build,) = docker.calls("build")
    assert build["dockerfile"].strip() == "FROM base/image:2\nRUN true"
    assert build["words"][:2] == ["build", "-t"]
    assert build["words"][3:] == ["-"]
    assert build["words"][2] in docker.calls("run")[0]["words"]
    (docker.folder / "broken").touch()
    async with docker.run(contained(image="", dockerfile="FROM other\n")) as upstream:
        with pytest.raises(UpstreamUnavailable, match=r"could not be built(?s:.*)no space left"):
            await upstream.ready()


async def test_source_of_a_repository_and_of_a_folder_is_added_to_the_image(
    docker: Docker, tmp_path: Path
) -> None:
    user = f"USER {os.getuid()}:{os.getgid()}"
    commit = "a" * 40
    source = ImageSource(repo="https://git.invalid/one.git", commit=commit, branch="b", sub_path="server")
    async with docker.run(contained(source=source)) as upstream:
        await upstream.ready()
    assert docker.calls("build")[0]["dockerfile"].split("\n")[:4] == [
        "FROM example/image:1", user, "WORKDIR /mcp",
        f"ADD https://git.invalid/one.git#{commit}:server /mcp",
    ]  # fmt: skip
    (tmp_path / "code/part").mkdir(parents=True)
    source = ImageSource(repo="code", sub_path="part")
    async with docker.run(contained(source=source, base_dir=tmp_path)) as upstream:
        await upstream.ready()
    build = docker.calls("build")[1]
    assert build["words"][3:] == ["-f", "-", str(tmp_path / "code/part")]
    assert "COPY . /mcp" in build["dockerfile"]


async def test_what_would_be_an_option_of_the_engine_is_refused(docker: Docker) -> None:
    for repo in ("https://git.invalid/a b", "https://git.invalid/a\nRUN evil"):
        source = ImageSource(repo=repo, commit="a" * 40)
        async with docker.run(contained(source=source)) as upstream:
            with pytest.raises(UpstreamUnavailable, match=r"source\.repo may hold only"):
                await upstream.ready()


async def test_containers_of_a_program_that_died_are_removed_and_no_others(docker: Docker) -> None:
    async with await anyio.open_process(["true"]) as process:
        await process.wait()
    host = instance_id().split("/")[0]
    dead = f"{host}/{process.pid}/1"
    reused = f"{host}/{os.getpid()}/1"
    (docker.folder / "ps").write_text(
        f"c1 {dead}\nc2 {instance_id()}\nc3 elsewhere/1/1\nc4 {reused}\nc5 nonsense\nc6\n"
    )
    assert is_dead(dead)
    async with docker.run(contained()) as upstream:
        await upstream.ready()
    assert docker.calls("rm")[0]["words"] == ["rm", "-f", "c1", "c4"]


@contextmanager
def service(word: bytes) -> Generator[int]:
    """The port of a service that says `word` to whoever comes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    with listener.accept()[0] as connection:
                        connection.sendall(word)

        thread = Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def reversing(docker: Docker, port: int) -> tuple[McpServer, str]:
    """A server with a reverse port, and the code with which it reads what the service says."""
    inside = free_port()
    (docker.folder / "elsewhere").write_text(str(inside))
    code = f"import socket; result = socket.create_connection(('127.0.0.1', {inside}), 20).recv(99).decode()"
    return contained(reverse_ports=(port,), env={"PATH": os.environ["PATH"]}), code


def sidecars(docker: Docker) -> list[dict[str, Any]]:
    return [call for call in docker.calls("run") if call["words"][-1] == "proxy"]


async def test_a_service_of_this_machine_is_reached_from_the_container(docker: Docker) -> None:
    with service(b"from the host") as port:
        server, code = reversing(docker, port)
        async with docker.run(server, NANOBOT_IMAGE="nanobot/image:1") as upstream:
            assert await use(upstream, "attempt", code=code) == {"result": "from the host"}
    (run, _), (sidecar,) = docker.calls("run"), sidecars(docker)
    container = run["words"][run["words"].index("--name") + 1]
    assert sidecar["words"] == [
        "run", "-i", "--rm", "--init", "--name", f"{container}-{port}",
        "--label", f"ai.nanobot.instance={instance_id()}",
        "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only",
        "--pids-limit", "64", "--memory", str(256 << 20), "--network", f"container:{container}",
        "-u", f"{os.getuid()}:{os.getgid()}",
        "-e", "CA_CERT", "-e", "CLIENT_CERT", "-e", "CLIENT_KEY", "-e", "LISTEN_PORT", "-e", "TARGET_HOST",
        "-e", "TARGET_PORT", "--entrypoint", "nanobot", "--", "nanobot/image:1", "proxy",
    ]  # fmt: skip
    assert (sidecar["env"]["LISTEN_PORT"], sidecar["env"]["TARGET_HOST"]) == (str(port), "127.0.0.1")
    assert "CLIENT_KEY" not in run["env"], "only the sidecar can open the way"
    assert ["rm", "-f", f"{container}-{port}"] in [call["words"] for call in docker.calls("rm")]


async def test_a_server_that_serves_http_has_reverse_ports_too(docker: Docker, tmp_path: Path) -> None:
    plain = script(tmp_path)
    (docker.folder / "elsewhere").write_text(str(free_port()))
    server = contained(args=plain.args, url=plain.url, name="web", reverse_ports=(free_port(),))
    async with docker.run(server, NANOBOT_IMAGE="nanobot/image:1") as upstream:
        assert text_of(await use(upstream, "echo", text="boxed")) == "boxed"
    assert len(sidecars(docker)) == 1


async def test_a_way_that_ends_stops_the_server_and_says_so(
    docker: Docker, caplog: pytest.LogCaptureFixture
) -> None:
    with service(b"x") as port:
        server, code = reversing(docker, port)
        async with docker.run(server, NANOBOT_IMAGE="nanobot/image:1") as upstream:
            await use(upstream, "attempt", code=code)
            first = next(call for call in docker.calls("run") if call["words"][-1] != "proxy")
            os.kill(sidecars(docker)[0]["pid"], signal.SIGKILL)
            await until(lambda: upstream.state.restarts == 1)
            with pytest.raises(ProcessLookupError):
                os.kill(first["pid"], 0)
            assert await use(upstream, "attempt", code=code) == {"result": "x"}
    assert [f"the way to port {port} ended: it was ended by SIGKILL"] == [
        record.__dict__["reason"] for record in caplog.records if record.message == "no connection"
    ]


@pytest.mark.parametrize(
    ("facts", "words"),
    [("true 192.0.2.1 ", r"cannot be led from 192\.0\.2\.1"), ("true  ", "no network of its own")],
)
async def test_a_way_that_cannot_be_opened_stops_the_server(docker: Docker, facts: str, words: str) -> None:
    (docker.folder / "facts").write_text(facts)
    server, _ = reversing(docker, free_port())
    async with docker.run(server, NANOBOT_IMAGE="nanobot/image:1") as upstream:
        with pytest.raises(UpstreamUnavailable, match=words):
            await upstream.ready()
    with pytest.raises(ProcessLookupError):
        os.kill(docker.calls("run")[0]["pid"], 0)


async def test_a_sidecar_that_does_not_start_is_told_with_its_reason(docker: Docker) -> None:
    with service(b"x") as taken:
        server, _ = reversing(docker, taken)
        (docker.folder / "elsewhere").write_text(str(taken))
        async with docker.run(server, NANOBOT_IMAGE="nanobot/image:1") as upstream:
            with pytest.raises(UpstreamUnavailable, match=r"is closed(?s:.*)cannot be listened at"):
                await upstream.ready()


async def test_a_server_that_ends_meanwhile_is_told_as_what_it_is(docker: Docker) -> None:
    (docker.folder / "facts").write_text("false ")
    server = contained(command="sh", args=("-c", "echo no such thing >&2; exit 3"), reverse_ports=(1,))
    async with docker.run(server, NANOBOT_IMAGE="nanobot/image:1") as upstream:
        with pytest.raises(UpstreamUnavailable, match=r"exited with status 3(?s:.*)no such thing"):
            await upstream.ready()


async def test_reverse_ports_need_an_image_with_nanobot_in_it(docker: Docker) -> None:
    async with docker.run(contained(reverse_ports=(5432,))) as upstream:
        with pytest.raises(UpstreamUnavailable, match="reversePorts need NANOBOT_IMAGE"):
            await upstream.ready()


async def test_caches_can_be_shared(docker: Docker) -> None:
    for name in ("one", "two"):
        server = contained(name=name, sandbox=SandboxSettings(shared_cache=True))
        async with docker.run(server) as upstream:
            await upstream.ready()
    for call in docker.calls("run"):
        assert f"{docker.home}/caches/.npm:/mcp/.npm" in call["words"]


async def test_roots_of_the_operator_are_mounted_and_those_of_clients_shown_if_they_are_inside(
    docker: Docker, tmp_path: Path
) -> None:
    for folder in ("given/inner", "work", "other"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "given/link").symlink_to(tmp_path / "other")
    asking = [str(PEERS / "asking_server.py"), "stdio"]
    box = {"image": "a/b:1", "command": sys.executable, "args": asking, "protocol": "legacy"}
    servers = {"box": box, "open": {**box, "sandbox": {"clientRoots": True}}}
    overrides = {"toolOverrides": {"where": {"name": "whereOpen"}}}
    document = {
        "mcpServers": {"box": box, "open": servers["open"] | overrides},
        "publish": {"mcpServers": ["box", "open"]},
    }
    (tmp_path / "nanobot.yaml").write_text(json.dumps(document))

    async def theirs(context: Any) -> types.ListRootsResult:
        places = ("given/inner", "given/link", "other", "given/inner/../../other")
        uris = [f"file://{tmp_path}/{place}" for place in places]
        return types.ListRootsResult(roots=[types.Root.model_validate({"uri": uri}) for uri in uris])

    def run() -> Any:
        roots = ("-r", f"{tmp_path}/given", "-r", f"cwd:{tmp_path}/work:rw")
        path = f"{docker.folder}:{os.environ['PATH']}"
        return serving(
            str(tmp_path / "nanobot.yaml"), "--exclude-built-in-agents", *roots, home=tmp_path, PATH=path
        )

    async def asked(client: Client, tool: str) -> str:
        (content,) = (await client.call_tool(tool, {})).content
        return content.text  # type: ignore[union-attr]

    ours = f"{(tmp_path / 'given').as_uri()}, {(tmp_path / 'work').as_uri()}"
    with run() as host:
        async with Client(host.url + "/mcp", mode="legacy", list_roots_callback=theirs) as client:
            assert await asked(client, "where") == ours
            inner = (tmp_path / "given/inner").as_uri()
            assert await asked(client, "whereOpen") == f"{inner}, {ours}"
    for call in docker.calls("run"):
        words = " ".join(call["words"])
        assert (
            f"-v {tmp_path}/given:{tmp_path}/given:ro -v {tmp_path}/work:{tmp_path}/work -w {tmp_path}/work"
            in words
        )


async def test_r26_after_kill_9_of_the_program_its_container_is_removed(docker: Docker) -> None:
    code = (
        "import anyio, sys\n"
        "from pathlib import Path\n"
        "from tests.upstream.test_upstream_container import Docker, contained\n"
        "async def main():\n"
        "    async with Docker(Path(sys.argv[1]), Path(sys.argv[2])).run(contained()) as upstream:\n"
        "        await upstream.ready()\n"
        "        print('ready', flush=True)\n"
        "        await anyio.sleep_forever()\n"
        "anyio.run(main)\n"
    )
    command = [sys.executable, "-c", code, str(docker.folder), str(docker.home)]
    async with await anyio.open_process(command) as program:
        assert program.stdout is not None
        assert (await program.stdout.receive()).startswith(b"ready")
        program.kill()
    await until(lambda: docker.calls("rm"))
    words = docker.calls("run")[0]["words"]
    assert docker.calls("rm")[0]["words"] == ["rm", "-f", words[words.index("--name") + 1]]
