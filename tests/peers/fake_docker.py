"""A stand-in for `docker`: writes down how it was called, and runs the command of `run` on this machine.

It stands as the program `docker` in a folder of its own, in which it keeps `calls.jsonl` (one call a line:
words, environment, process id, standard input of a build). `ps` prints the file `ps`, `container inspect` the
file `facts`; a build fails if the file `broken` is there. As all containers are on this machine, one with the
variable LISTEN_PORT is told to listen at the port in the file `elsewhere` instead. It shows the exact command
line that an engine would get; it isolates nothing.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

HERE = Path(sys.argv[0]).parent
WITH_VALUE = frozenset(
    "-e -u -v -w -p --name --label --cap-drop --security-opt --tmpfs --pids-limit --cpus --memory --network "
    "--userns --entrypoint".split()
)


def note(**facts: object) -> None:
    with open(HERE / "calls.jsonl", "a") as calls:
        calls.write(
            json.dumps({"words": sys.argv[1:], "env": dict(os.environ), "pid": os.getpid(), **facts}) + "\n"
        )


def run(words: list[str]) -> None:
    env = {"PATH": os.environ["PATH"]}
    at = 0
    while words[at] != "--":
        if words[at] == "-e":
            name, equals, value = words[at + 1].partition("=")
            env[name] = value if equals else os.environ[name]
        at += 2 if words[at] in WITH_VALUE else 1
    command = words[at + 2 :]
    if "--entrypoint" in words[:at]:
        assert words[words.index("--entrypoint") + 1] == "nanobot"
        command = [sys.executable, "-m", "nanobot", *command]
    if "LISTEN_PORT" in env:
        env["LISTEN_PORT"] = (HERE / "elsewhere").read_text()
    note()
    os.execvpe(command[0], command, env)


def main() -> int:
    match sys.argv[1]:
        case "run":
            run(sys.argv[2:])
        case "build":
            note(dockerfile=sys.stdin.read())
            if (HERE / "broken").exists():
                print("no space left on device", file=sys.stderr)
                return 1
            (HERE / "images").write_text(sys.argv[3])
        case "container":
            note()
            print((HERE / "facts").read_text() if (HERE / "facts").exists() else "true 127.0.0.1 ")
        case "image":
            note()
            images = HERE / "images"
            return 0 if images.exists() and images.read_text() == sys.argv[3] else 1
        case "ps":
            note()
            if (HERE / "ps").exists():
                print((HERE / "ps").read_text(), end="")
        case _:
            note()
    return 0


if __name__ == "__main__":
    sys.exit(main())
