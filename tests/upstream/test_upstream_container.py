"""Servers in containers: the command line that an engine gets, seen by one that only writes it down."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
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
    return McpServer(
        **{
            "name": "box",
            "in_container": True,
            "image": "example/image:1",
            "command": sys.executable,
            "args": (PROBE,),
            **settings,
        }
    )


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
