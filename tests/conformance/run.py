"""`make conformance`: the official suite against what we serve and what we use, in both eras, as a table.

As a client of our host the suite meets a server made with the official SDK, to which the host speaks once in
the suite's era and once in the other one. As a server it meets our `Upstream`, used by `client.py`.

Fails on a scenario that fails and is not in `expected-failures.yaml`, and on one there that does not fail.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml
from tests.conformance.suite import (
    ROOT,
    TASKS,
    Found,
    Role,
    SuiteMissing,
    find_node,
    required,
    run,
    run_scenarios,
)
from tests.peers.programs import clean_env, serving, started

EXPECTED = Path(__file__).with_name("expected-failures.yaml")
REVISIONS = {"legacy": "2025-11-25", "modern": "2026-07-28"}
COMMAND = f"{shlex.quote(sys.executable)} -m tests.conformance.client"

Era = Literal["legacy", "modern"]


@dataclass(frozen=True)
class Leg:
    """One run of the suite. `upstream`: the era in which our host talks to the server behind it.

    `extension`: the scenarios of one, instead of those of the revision.
    """

    role: Role
    era: Era
    upstream: Era | None = None
    extension: str = ""

    @property
    def revision(self) -> str:
        return REVISIONS[self.era]

    @property
    def subject(self) -> str:
        if self.extension:
            return f"host, {self.extension}"
        return f"host, {self.upstream} upstream" if self.upstream else "upstream client"

    @property
    def name(self) -> str:
        return f"{self.role} {self.revision} ({self.subject})"

    @property
    def scenarios(self) -> Sequence[str]:
        return TASKS if self.extension else required(self.role, self.revision)


SERVER_LEGS = [
    Leg("server", "legacy", "legacy"),
    Leg("server", "modern", "modern"),
    Leg("server", "legacy", "modern"),
    Leg("server", "modern", "legacy"),
    Leg("server", "modern", "modern", "tasks"),
]
CLIENT_LEGS = [Leg("client", "legacy"), Leg("client", "modern")]


@dataclass(frozen=True)
class Verdict:
    """Of one leg. `unexpected` and `stale` name scenarios or `scenario:check`."""

    leg: Leg
    passed: int
    total: int
    checks: int
    expected: int
    unexpected: tuple[str, ...]
    stale: tuple[str, ...]


def judge(leg: Leg, found: Mapping[str, Found], expected: Mapping[str, str]) -> Verdict:
    """`expected`: scenarios or `scenario:check`, each with the reason why it fails."""
    wanted = leg.scenarios
    unexpected: list[str] = []
    met: set[str] = set()
    passed = 0
    for scenario in wanted:
        one = found.get(scenario, Found(0, ("did not run",)))
        bad = one.failed or (() if one.passed else ("nothing was checked",))
        passed += not bad
        for check in bad:
            key = scenario if scenario in expected else f"{scenario}:{check}"
            met.add(key) if key in expected else unexpected.append(key)
    checks = sum(found[scenario].passed for scenario in wanted if scenario in found)
    stale = tuple(key for key in expected if key not in met)
    return Verdict(leg, passed, len(wanted), checks, len(met), tuple(unexpected), stale)


@contextlib.contextmanager
def host(upstream: str, era: Era, folder: Path) -> Generator[str]:
    """`nanobot run` with `upstream` as its only server, all of it published; the address of its endpoint."""
    publish = dict.fromkeys(("mcpServers", "prompts", "resources", "resourceTemplates"), "suite")
    definition = {"url": upstream, "protocol": era}
    folder.mkdir()
    config = folder / "nanobot.yaml"
    config.write_text(json.dumps({"mcpServers": {"suite": definition}, "publish": publish}))
    with serving(str(config), "--default-model", "demo", home=folder) as running:
        yield running.url + "/mcp"


@contextlib.contextmanager
def peer(module: str, folder: Path) -> Generator[str]:
    argv = [sys.executable, "-W", "ignore", "-m", f"tests.peers.{module}"]
    with started(argv, env=clean_env(folder), cwd=ROOT, announces=r"serving (http://\S+)") as running:
        yield running.url


def run_leg(node: str, leg: Leg, folder: Path) -> Mapping[str, Found]:
    """The suite's findings; `folder` keeps what it wrote."""
    folder.mkdir()
    results = folder / "results"
    results.mkdir()
    if leg.upstream is None:
        return run(node, leg.role, leg.revision, ["--command", COMMAND], results)
    module = "task_server" if leg.extension else "conformance_server"
    with peer(module, folder) as upstream, host(upstream, leg.upstream, folder / "host") as url:
        if leg.extension:
            return run_scenarios(node, leg.scenarios, leg.revision, url, results)
        return run(node, leg.role, leg.revision, ["--url", url], results)


def run_legs(node: str, legs: Sequence[Leg], folder: Path) -> Sequence[Verdict]:
    """The server legs side by side, each with a host and a server of its own; then the others, which start a
    process a scenario and fill the machine by themselves."""
    expected: Mapping[str, Mapping[str, str] | None] = yaml.safe_load(EXPECTED.read_text()) or {}

    def one(leg: Leg) -> Verdict:
        found = run_leg(
            node, leg, folder / f"{leg.role}-{leg.revision}-{leg.extension or leg.upstream or 'client'}"
        )
        return judge(leg, found, expected.get(leg.name) or {})

    with ThreadPoolExecutor(2) as pool:
        served = list(pool.map(one, [leg for leg in legs if leg.role == "server"]))
    return served + [one(leg) for leg in legs if leg.role == "client"]


def table(verdicts: Sequence[Verdict]) -> str:
    rows = [["suite", "requirements", "role", "subject", "passed", "failed", "total", "checks"]]
    for verdict in verdicts:
        leg = verdict.leg
        numbers = (verdict.passed, verdict.total - verdict.passed, verdict.total, verdict.checks)
        rows.append(["conformance", leg.revision, leg.role, leg.subject, *map(str, numbers)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    for verdict in verdicts:
        lines += [f"FAILED   {verdict.leg.name}: {one}" for one in verdict.unexpected]
        lines += [f"PASSES   {verdict.leg.name}: {one} (remove it: {EXPECTED.name})" for one in verdict.stale]
    return "\n".join(line.rstrip() for line in lines)


def main() -> int:
    try:
        node = find_node()
    except SuiteMissing as e:
        print(f"The conformance suite {e}.", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="conformance-"))
    verdicts = run_legs(node, SERVER_LEGS + CLIENT_LEGS, folder)
    print(table(verdicts))
    failed = any(verdict.unexpected or verdict.stale for verdict in verdicts)
    print(f"What the suite wrote: {folder}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
