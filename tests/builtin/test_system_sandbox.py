"""The view of the machine that a confined program gets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.peers.needed import needed

from nanobot.upstream.sandbox import Sandbox, find_sandbox, installation

pytestmark = needed(find_sandbox() is not None, "bubblewrap")


@pytest.fixture
def sandbox() -> Sandbox:
    found = find_sandbox()
    assert found is not None
    return found


def run(sandbox: Sandbox, command: str, cwd: Path, network: bool = False, **paths: Any) -> str:
    argv = sandbox.wrap(
        ["sh", "-c", command], cwd=cwd, network=network, **{"writable": [], "readable": [cwd], **paths}
    )
    env = {"PATH": os.environ["PATH"]}
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=30).stdout


def test_of_nested_folders_the_innermost_decides(sandbox: Sandbox, tmp_path: Path) -> None:
    inner = tmp_path / "open" / "closed" / "open-again"
    inner.mkdir(parents=True)
    for folder in (tmp_path / "open", tmp_path / "open/closed", inner):
        (folder / "file").touch()
    run(
        sandbox,
        "for d in . closed closed/open-again; do touch $d/made; ls $d > $d/seen; done",
        tmp_path / "open",
        writable=[tmp_path / "open", inner],
        hidden=[tmp_path / "open/closed"],
    )
    assert (tmp_path / "open/seen").read_text().split() == ["closed", "file", "made", "seen"]
    assert sorted(f.name for f in inner.parent.iterdir()) == ["file", "open-again"]
    assert (inner / "made").exists()


def test_readable_folders_cannot_be_changed(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    assert run(sandbox, "cat a; echo y > a; rm a; chmod 777 .", tmp_path) == "x"
    assert (tmp_path / "a").read_text() == "x"


def test_a_folder_that_is_reached_through_a_link_is_there_under_both_names(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/a").write_text("x")
    (tmp_path / "link").symlink_to("real")
    link = tmp_path / "link"
    assert run(sandbox, f"cat {link}/a {tmp_path}/real/a", link, readable=[link]) == "xx"


def test_secrets_stay_hidden_when_a_whole_home_is_opened(
    sandbox: Sandbox, monkeypatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/id_rsa").write_text("treasure")
    (tmp_path / ".netrc").write_text("treasure")
    (tmp_path / ".profile").write_text("harmless")
    seen = run(sandbox, "cat .ssh/* .netrc .profile", tmp_path, writable=[tmp_path])
    assert seen == "harmless"


def test_the_network_is_there_only_when_it_is_granted(sandbox: Sandbox, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        connect = f"import socket; socket.create_connection(('127.0.0.1', {port})); print('connected')"
        command = f'{sys.executable} -c "{connect}"'
        assert run(sandbox, command, tmp_path, network=True) == "connected\n"
        assert run(sandbox, command, tmp_path, network=False) == ""


def test_a_program_brings_its_installation_but_never_a_home(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for prefix in ("tool", ".local", "venv", "python"):
        (tmp_path / prefix / "bin").mkdir(parents=True)
        (tmp_path / prefix / "bin/run").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/run").touch()
    (tmp_path / "venv/pyvenv.cfg").write_text(f"home = {tmp_path}/python/bin\nversion = 3.11\n")
    (tmp_path / ".local/bin/linked").symlink_to(tmp_path / "tool/bin/run")

    def needed(program: str) -> set[str]:
        return {str(path.relative_to(tmp_path)) for path in installation(str(tmp_path / program))}

    assert needed("tool/bin/run") == {"tool/bin/run", "tool"}
    assert needed(".local/bin/run") == {".local/bin/run"}
    assert needed("bin/run") == {"bin/run"}
    assert needed(".local/bin/linked") == {".local/bin/linked", "tool/bin/run", "tool"}
    assert needed("venv/bin/run") == {"venv/bin/run", "venv", "python"}
    assert installation("run") == []


def test_what_is_confined_ends_with_whoever_started_it(sandbox: Sandbox, tmp_path: Path) -> None:
    argv = sandbox.wrap(["sh", "-c", "echo on; cat"], cwd=tmp_path, writable=[tmp_path], network=False)
    script = f"import subprocess; subprocess.run({argv!r})"
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "on\n"
        parent.kill()
        assert (
            parent.stdout.read() == ""
        )  # the end of the pipe: its last holder, the confined program, is gone


def test_what_a_version_manager_starts_lies_beside_its_shims(tmp_path: Path) -> None:
    shim = tmp_path / "manager" / "shims" / "python3"
    shim.parent.mkdir(parents=True)
    shim.write_text("#!/bin/sh\n")
    assert tmp_path / "manager" in installation(str(shim))
