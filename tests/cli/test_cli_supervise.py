"""`nanobot _exec`: programs end with their starter, and say how."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXEC = [sys.executable, "-m", "nanobot", "_exec"]


def start(*command: str, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*EXEC, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        **options,
    )  # fmt: skip


def sleepers(mark: str) -> list[str]:
    """The living processes that sleep for `mark` seconds."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] == [b"sleep", mark.encode()]:
                found.append(entry.name)
    return found


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "kill -TERM $$"), 143),
        (("no-such-program-at-all",), 127),
        (("/etc/passwd",), 126),
    ],
)
def test_it_exits_as_the_command_did(command: tuple[str, ...], status: int) -> None:
    process = start(*command)
    process.communicate(timeout=30)
    assert process.returncode == status


def test_without_a_command_it_says_what_is_missing() -> None:
    process = start()
    _, said = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "needs a command" in said


def test_standard_input_and_output_are_those_of_the_command() -> None:
    process = start("cat")
    said, _ = process.communicate("x" * 300_000, timeout=30)
    assert said == "x" * 300_000
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("script", "mark"),
    [
        ("sleep 98761 & exec sleep 98761", "98761"),  # ends nothing by itself
        ("sleep 98762 & cat", "98762"),  # the direct child leaves at the end of its input
        ("setsid sleep 98763 & exit 0", "98763"),  # the direct child leaves at once
    ],
)
def test_nothing_is_left_of_what_a_helper_put_into_the_background(script: str, mark: str) -> None:
    process = start("sh", "-c", script)
    process.communicate("", timeout=30)
    assert sleepers(mark) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_everything(number: signal.Signals) -> None:
    process = start("sh", "-c", "sleep 98764 & echo ready; exec sleep 98764")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 143
    assert sleepers("98764") == []


def test_r26_nothing_is_left_five_seconds_after_its_own_kill_9() -> None:
    process = start("sleep", "98765")
    deadline = time.monotonic() + 10
    while not sleepers("98765"):
        assert time.monotonic() < deadline
    process.kill()
    process.communicate(timeout=30)
    deadline = time.monotonic() + 5
    while sleepers("98765"):
        assert time.monotonic() < deadline


def test_another_descriptor_can_be_the_lifeline() -> None:
    ours, theirs = os.pipe()
    process = start(
        "sh", "-c", "read line; echo $line $NANOBOT_LIFELINE_FD; exec sleep 98766",
        env={**os.environ, "NANOBOT_LIFELINE_FD": str(ours)}, pass_fds=[ours],
    )  # fmt: skip
    os.close(ours)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("hello\n")
    process.stdin.close()
    assert process.stdout.readline() == "hello\n"
    assert process.poll() is None
    os.close(theirs)
    assert process.wait(30) == 143
    process.stdout.close()
    assert process.stderr is not None
    process.stderr.close()


def test_a_lifeline_that_is_not_open_is_told() -> None:
    process = start("true", env={**os.environ, "NANOBOT_LIFELINE_FD": "987"})
    _, said = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "NANOBOT_LIFELINE_FD" in said
