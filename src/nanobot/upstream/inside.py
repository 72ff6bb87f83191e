"""Runs a command inside a sandbox, with limits and a way to the proxy.

Run as a script by a bare interpreter, `python -I -S inside.py [--memory BYTES] [--cpus N] [--pids N]
[--proxy SOCKET] -- COMMAND ARGS…`, so it imports nothing of the product. With `--proxy` a forked process
takes connections on loopback (the sandbox has a network of its own) and passes them on through SOCKET.
"""

from __future__ import annotations

import math
import os
import resource
import socket
import sys
import threading

PROXY_PORT = 3128
MAX_CONNECTIONS = 64
CHUNK = 64 * 1024


def main() -> int:
    words = sys.argv[1:]
    cut = words.index("--")
    options = dict(zip(words[:cut:2], words[1:cut:2], strict=True))
    argv = words[cut + 1 :]
    if "--proxy" in options:
        _fork_relay(options["--proxy"])
    if "--memory" in options:
        # Data, not address space: JavaScript engines reserve far more addresses than they use.
        _limit(resource.RLIMIT_DATA, int(options["--memory"]))
    if "--pids" in options:
        _limit(resource.RLIMIT_NPROC, int(options["--pids"]))
    if "--cpus" in options and hasattr(os, "sched_setaffinity"):
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cpus[: max(1, math.ceil(float(options["--cpus"])))])
    try:
        os.execvp(argv[0], argv)
    except OSError as e:
        os.write(2, f"{argv[0]}: {e.strerror}\n".encode())
        return 127 if isinstance(e, FileNotFoundError) else 126


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def _fork_relay(path: str) -> None:
    listener = socket.create_server(("127.0.0.1", PROXY_PORT), backlog=MAX_CONNECTIONS)
    if os.fork() > 0:
        listener.close()
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):  # held here they would keep the command's end of file from being seen
        os.dup2(nothing, stream)
    free = threading.Semaphore(MAX_CONNECTIONS)
    while True:
        free.acquire()
        client, _ = listener.accept()
        threading.Thread(target=_serve, args=(client, path, free), daemon=True).start()


def _serve(client: socket.socket, path: str, free: threading.Semaphore) -> None:
    try:
        with client, socket.socket(socket.AF_UNIX) as proxy:
            proxy.connect(path)
            back = threading.Thread(target=_pass_on, args=(proxy, client), daemon=True)
            back.start()
            _pass_on(client, proxy)
            back.join()
    except OSError:
        pass
    finally:
        free.release()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    try:
        while chunk := source.recv(CHUNK):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


if __name__ == "__main__":
    sys.exit(main())
