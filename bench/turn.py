"""A whole turn without model time: our chat front door over HTTP against the reference assistant's API.

Both talk to the same scripted model server over HTTP, store the conversation and stream the answer. The
reference assistant is installed from its published package into an environment of its own.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import urllib.request
import venv
from collections.abc import Callable
from pathlib import Path

import report
from load import Load, http_request, run
from processes import HERE, cpu_seconds, free_port, process

REFERENCE = "nanobot-ai[api]==0.3.5"
ENVIRONMENT = HERE / ".reference"
CONVERSATIONS = 16
GROUPS = 12
STREAM = {"Content-Type": "application/json", "Accept": "text/event-stream"}


def drive(url: str, requests: Callable[[int], bytes], connections: int, turns: int) -> Load:
    """`turns` turns on each of `connections` conversations at once."""
    import asyncio

    import uvloop

    def source(i: int) -> Callable[[], bytes | None]:
        request, left = requests(i), turns

        def following() -> bytes | None:
            nonlocal left
            left -= 1
            return request if left >= 0 else None

        return following

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        load = runner.run(run(url, source, connections))
    if load.failures:
        raise RuntimeError(f"{load.failures} turns failed at {url}")
    return load


def post(url: str, body: dict) -> dict:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


class Ours:
    """Conversations through `POST /api/threads/{id}/messages`."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.threads: list[str] = []

    def open(self, count: int) -> None:
        self.threads = [post(f"{self.base}/api/threads", {})["id"] for _ in range(count)]

    def request(self, i: int) -> bytes:
        url = f"{self.base}/api/threads/{self.threads[i]}/messages"
        return http_request(url, b'{"text":"hello"}', STREAM)


def measure_ours(model: str) -> tuple[float, float]:
    """Turns per second at 16 conversations and CPU milliseconds a turn; prints the growth with history."""
    with tempfile.TemporaryDirectory() as home:
        config = {
            "llmProviders": {
                "bench": {"dialect": "OpenAIChatCompletions", "baseURL": model + "/v1", "apiKey": "x"}
            },
            "agents": {"main": {"model": "bench/m", "permissions": {"*": "deny"}}},
            "publish": {"entrypoint": "main"},
        }
        path = Path(home, "nanobot.yaml")
        path.write_text(json.dumps(config))
        port = free_port()
        argv = [sys.executable, "-m", "nanobot", "run", str(path), "-a", f"127.0.0.1:{port}"]
        with process(argv, port, NANOBOT_HOME=home) as child:
            ours = Ours(f"http://127.0.0.1:{port}")
            ours.open(CONVERSATIONS)
            drive(ours.base, ours.request, CONVERSATIONS, 5)
            rates, costs = [], []
            for _ in range(5):
                before = cpu_seconds(child.pid)
                load = drive(ours.base, ours.request, CONVERSATIONS, 30)
                costs.append((cpu_seconds(child.pid) - before) * 1000 / len(load.latencies))
                rates.append(load.per_second)
            growth(ours, child)
            return statistics.median(rates), statistics.median(costs)


def growth(ours: Ours, child: subprocess.Popen) -> None:
    """CPU of a turn in conversations of about 10 and of about 1,000 stored messages, four at a time."""
    ours.open(4 * GROUPS + 4)
    short = [ours.threads[i : i + 4] for i in range(0, 4 * GROUPS, 4)]
    long = ours.threads[4 * GROUPS :]

    def cost(threads: list[str], turns: int) -> float:
        ours.threads = threads
        before = cpu_seconds(child.pid)
        load = drive(ours.base, ours.request, len(threads), turns)
        return (cpu_seconds(child.pid) - before) * 1000 / len(load.latencies)

    cost(long, 480)
    for group in short:
        cost(group, 3)
    at_10 = statistics.mean(cost(group, 5) for group in short)
    at_1000 = statistics.mean(cost(long, 5) for _ in range(GROUPS))
    report.ratio("turn at 1,000 stored messages, ms CPU", at_1000, "at 10, ms CPU", at_10, at_most=1.3)


def reference_python() -> Path:
    """The interpreter of an environment that holds the published reference assistant; made when missing."""
    python = ENVIRONMENT / "bin" / "python"
    if not (ENVIRONMENT / "ready").exists():
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", REFERENCE]
        subprocess.run(install, check=True)
        (ENVIRONMENT / "ready").touch()
    return python


def measure_reference(model: str) -> float:
    """Turns per second of the reference assistant at 16 conversations."""
    python = reference_python()
    with tempfile.TemporaryDirectory() as home:
        config = {
            "providers": {"custom": {"apiKey": "x", "apiBase": model + "/v1"}},
            "agents": {
                "defaults": {"model": "custom/m", "provider": "custom", "workspace": f"{home}/workspace"}
            },
        }
        path = Path(home, "config.json")
        path.write_text(json.dumps(config))
        port = free_port()
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        argv = [str(python.parent / "nanobot"), "serve", "-p", str(port), "-c", str(path)]
        with process(argv, port, HOME=home):

            def request(i: int) -> bytes:
                body = {
                    "stream": True,
                    "session_id": f"s{i}",
                    "messages": [{"role": "user", "content": "hello"}],
                }
                return http_request(url, json.dumps(body).encode(), STREAM)

            drive(url, request, CONVERSATIONS, 2)
            return statistics.median(drive(url, request, CONVERSATIONS, 5).per_second for _ in range(3))


def main() -> None:
    port = free_port()
    model = f"http://127.0.0.1:{port}"
    argv = [sys.executable, "-m", "nanobot.testing.model_server", "--port", str(port)]
    with process(argv, port):
        ours, cost = measure_ours(model)
        report.figure("turn without model time", cost, "ms CPU", at_most=3)
        if os.environ.get("BENCH_WITHOUT_REFERENCE"):
            report.plain("turns/s at 16 conversations", ours, "(reference left out as asked)")
            return
        reference = measure_reference(model)
    report.ratio(
        "turns/s at 16 conversations", ours, "reference assistant 0.3.5, turns/s", reference, at_least=25
    )


if __name__ == "__main__":
    main()
