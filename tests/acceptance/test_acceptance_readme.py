"""Every command of the README works, in its order, on a copy of the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.peers.programs import clean_env, serving

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
SET_UP = re.compile(r"^make (demo|test)$", re.M)


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    named = [block for block in BLOCKS if SET_UP.search(block)]
    assert [b.split() for b in named] == [["make", "demo", "make", "test"]]
    dry = subprocess.run(["make", "-n", "demo", "test"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "demo.sh" in dry.stdout
    assert "pytest" in dry.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "examples", place / "examples", ignore=shutil.ignore_patterns("*.db*", "files"))
    return place


def shell(script: str, checkout: Path) -> str:
    env = clean_env(checkout) | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    ran = subprocess.run(
        ["sh", "-eu", "-c", script],
        cwd=checkout,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_tour_works_from_top_to_bottom(checkout: Path) -> None:
    tour = [b for b in BLOCKS if not SET_UP.search(b) and "nanobot run" not in b and "curl" not in b]
    assert len(tour) == 3
    said = [shell(block, checkout) for block in tour]
    assert "demo" in said[0]
    assert "Welcome to nanobot" in said[1]
    assert "Welcome to nanobot" in said[2]
    assert "cli:direct" in said[2]


def test_what_is_published_answers_where_the_readme_says(tmp_path: Path) -> None:
    [run] = [b.strip() for b in BLOCKS if b.startswith("nanobot run")]
    [curl] = [b.strip() for b in BLOCKS if b.startswith("curl")]
    args = run.split()[2:]
    with serving(*args, home=tmp_path, cwd=ROOT) as server:
        path = curl.rpartition("localhost:8080")[2]
        with urllib.request.urlopen(server.url + path, timeout=30) as answer:
            assert b'"status":"ok"' in answer.read()
        for route in ("/", "/api/threads"):
            with urllib.request.urlopen(server.url + route, timeout=30) as answer:
                assert answer.status == 200
