"""Runs one command and never lets it, or anything it started, outlive us.

Run as a script by a bare interpreter, `python -I -S warden.py FD COMMAND ARGS…`, so it imports nothing of the
product. FD is the reading end of a pipe whose other end only nanobot holds: end of file there means that
nanobot closed it or died in whatever way, and everything below is stopped: SIGTERM, two seconds, SIGKILL.
The same happens to what is left behind when the command ends by itself. Exits as the command did, with
128 + n for signal n, 127 if it was not found and 126 if it cannot be run. `--after N WORDS…` in front of
COMMAND is a command of N words that is run at the very end.

With `-` for FD the standard input is the lifeline: it is passed on to the command, and five seconds after its
end everything is stopped.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import threading
import time

GRACE_S = 2.0
INPUT_GRACE_S = 5.0
AFTER_S = 10.0
SANDBOX = "bwrap"
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    where, argv, after = sys.argv[1], sys.argv[2:], list[str]()
    if argv[:1] == ["--after"]:
        count = int(argv[1])
        after, argv = argv[2 : 2 + count], argv[2 + count :]
    passes_on = where == "-"
    if passes_on:
        lifeline, held = os.pipe()
        their_stdin, feed = os.pipe()
    else:
        lifeline, held, their_stdin, feed = int(where), -1, -1, -1
        os.set_inheritable(lifeline, False)
    prctl = _prctl()
    # What loses its parent below us becomes our child, so that we can find and end it.
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _ignore)
    child = os.fork()
    if child == 0:
        if passes_on:
            os.dup2(their_stdin, 0)
        _become(argv, prctl)
    # The command alone uses these; held here they would keep its end of file from being seen.
    for stream in (their_stdin, 1) if passes_on else (0, 1):
        os.close(stream)
    if passes_on:
        threading.Thread(target=_pass_on, args=(feed, held), daemon=True).start()
    status = _watch(child, lifeline, wake_read)
    _end_all(child)
    if after:
        _run_after(after)
    return status


def _pass_on(feed: int, held: int) -> None:
    """Copy our standard input to the command; some seconds after its end let go of the lifeline."""
    is_open = True
    while chunk := os.read(0, 64 * 1024):
        try:
            while is_open and chunk:
                chunk = chunk[os.write(feed, chunk) :]
        except BrokenPipeError:
            is_open = False  # it reads no more; our own end of file still matters
    os.close(feed)
    time.sleep(INPUT_GRACE_S)
    os.close(held)


def _run_after(argv: list[str]) -> None:
    """Run a last command, for a few seconds at most."""
    child = os.fork()
    if child == 0:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.set_inheritable(nothing, True)  # it may be one of the three itself
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        _become(argv, _prctl())
    deadline = time.monotonic() + AFTER_S
    while time.monotonic() < deadline:
        if any(pid == child for pid, _ in _reap()):
            return
        time.sleep(0.02)
    _signal_group(child, signal.SIGKILL)


def _become(argv: list[str], prctl: _Prctl) -> None:
    """Turn this forked process into the command; never returns."""
    os.setpgid(0, 0)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold every secret it was given
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except OSError as e:
        os.write(2, f"{argv[0]}: {e.strerror}\n".encode())
        os._exit(127 if isinstance(e, FileNotFoundError) else 126)


def _watch(child: int, lifeline: int, wake: int) -> int:
    """Wait for the command to end by itself, the lifeline to close, or a signal; the exit status."""
    while True:
        ready, _, _ = select.select([lifeline, wake], [], [])
        signals = os.read(wake, 512) if wake in ready else b""
        for pid, status in _reap():
            if pid == child:
                return _exit_status(status)
        if lifeline in ready or set(signals) - {signal.SIGCHLD}:
            return _stop(child)


def _stop(child: int) -> int:
    # A sandbox that is asked to leave takes what is in it along at once; so those inside are asked alone.
    inside = _inside_sandbox(child)
    for pid in inside:
        _send(pid, signal.SIGTERM)
    if not inside:
        _signal_group(child, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline:
        for pid, status in _reap():
            if pid == child:
                return _exit_status(status)
        time.sleep(0.02)
    _signal_group(child, signal.SIGKILL)
    return 128 + signal.SIGKILL


def _end_all(group: int) -> None:
    """End what is left of the command's group and whatever else has become our child."""
    deadline = time.monotonic() + GRACE_S
    number = signal.SIGTERM
    while time.monotonic() < deadline:
        _reap()
        left = _children()
        if not _signal_group(group, number) and not left:
            return
        for pid in left:
            _send(pid, number)
        number = signal.SIGKILL
        time.sleep(0.05)


def _children() -> list[int]:
    """Our direct children; everything below them becomes one when they end."""
    return _children_of(os.getpid())


def _children_of(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as listing:
            return [int(pid) for pid in listing.read().split()]
    except OSError:
        return []


def _inside_sandbox(child: int) -> list[int]:
    """The processes that bubblewrap runs, none if the command is not it."""
    if _name(child) != SANDBOX:
        return []
    found: list[int] = []
    to_do = [child]
    while to_do:
        below = _children_of(to_do.pop())
        to_do += below
        found += [pid for pid in below if _name(pid) != SANDBOX]
    return found


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="ascii", errors="replace") as name:
            return name.read().strip()
    except OSError:
        return ""


def _reap() -> list[tuple[int, int]]:
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, status))


def _exit_status(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _signal_group(group: int, number: int) -> bool:
    """False if nobody is left in the group."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS says so of a group of zombies
        return False
    return True


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _ignore(number: int, frame: object) -> None:
    """Signals are read from the wake-up pipe."""


class _Prctl:
    def __call__(self, option: int, value: int) -> None: ...


def _prctl() -> _Prctl:
    """Linux's `prctl`; elsewhere something that does nothing."""
    if not sys.platform.startswith("linux"):
        return _Prctl()
    import ctypes

    library = ctypes.CDLL(None)

    class Real(_Prctl):
        def __call__(self, option: int, value: int) -> None:
            library.prctl(option, value, 0, 0, 0)

    return Real()


if __name__ == "__main__":
    sys.exit(main())
