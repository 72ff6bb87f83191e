"""An MCP server on stdio that misbehaves in one chosen way: `bad_server.py MODE`. Standard library only.

It lists the tool `work`, whose result counts how often it was called; MODE says what is wrong with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time


def send(message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(request: dict, result: object) -> None:
    send({"jsonrpc": "2.0", "id": request["id"], "result": result})


def listed(mode: str, params: dict) -> dict:
    tools = [{"name": "work", "inputSchema": {"type": "object"}, "x-unknown": {"kept": True}}]
    match mode:
        case "endless":
            return {"tools": tools, "nextCursor": str(int(params.get("cursor", "0")) + 1)}
        case "cycle":
            return {"tools": tools, "nextCursor": "again"}
        case "pages" if "cursor" not in params:
            return {"tools": tools, "nextCursor": "2"}
        case "pages":
            return {"tools": [{"name": "rest"}]}
        case "nameless":
            return {"tools": [{"title": "no name"}, 7, *tools]}
        case _:
            return {"tools": tools}


def work(mode: str, request: dict, count: int) -> None:
    match mode:
        case "dies":
            print("about to die; token", os.environ.get("TOKEN", ""), file=sys.stderr, flush=True)
            os._exit(3)
        case "dies-once" if not os.path.exists(sys.argv[2]):
            open(sys.argv[2], "w").close()
            os._exit(3)
        case "hangs":
            return
        case "garbage":
            sys.stdout.write('no json\n[1,2]\n{"jsonrpc":"2.0"}\n7\n\n\x00\n')
            send({"jsonrpc": "2.0", "id": 999, "result": {"of": "nobody"}})
            send({"jsonrpc": "2.0", "id": str(request["id"]), "result": {"of": "another type"}})
        case "long":
            piece = "x" * (1 << 20)
            for _ in range(100):
                sys.stdout.write(piece)
            sys.stdout.write("\n")
        case "oversized" | "oversized-id-last":
            id, result = f'"id":{request["id"]}', '"result":{"x":"'
            start, end = (f"{id},{result}", "") if mode == "oversized" else (result, f",{id}")
            sys.stdout.write('{"jsonrpc":"2.0",' + start)
            for _ in range(65):
                sys.stdout.write("x" * (1 << 20))
            sys.stdout.write('"}' + end + "}\n")
            sys.stdout.flush()
            return
        case "noisy":
            for _ in range(64):
                sys.stderr.write("y" * (1 << 20))
            for n in range(1000):
                print("noise", n, file=sys.stderr)
            sys.stderr.flush()
        case "twice":
            answer(request, {"count": count})
    answer(request, {"count": count, "env": dict(os.environ), "cwd": os.getcwd()})


def main() -> None:
    mode = sys.argv[1]
    if mode == "family":  # children in groups of their own, that do not care about signals
        script = "import signal,time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
        for own_group in (False, True):
            child = subprocess.Popen(
                [sys.executable, "-c", script, sys.argv[2]],
                start_new_session=own_group,
                stdout=subprocess.DEVNULL,
            )
            print("child", child.pid, file=sys.stderr, flush=True)
    if mode == "mute":
        time.sleep(600)
    if mode == "exits":
        print("no configuration", file=sys.stderr)
        sys.exit(4)
    count = 0
    while line := sys.stdin.readline():
        message = json.loads(line)
        match message.get("method"):
            case "initialize" if mode == "modern-only":
                data = {"supported": ["2030-01-01"], "requested": "2025-11-25"}
                error = {"code": -32022, "message": "no", "data": data}
                send({"jsonrpc": "2.0", "id": message["id"], "error": error})
            case "initialize":
                version = {"old": "2024-11-05", "alien": "1999-01-01"}.get(mode, "2025-11-25")
                capabilities = {"tools": {"listChanged": True}}
                info = {"name": "bad", "version": "1"}
                answer(
                    message, {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
                )
            case "tools/list":
                answer(message, listed(mode, message.get("params") or {}))
            case "tools/call":
                count += 1
                work(mode, message, count)
            case "ping":
                answer(message, {})
            case _:
                if "id" in message:
                    error = {"code": -32601, "message": "unknown"}
                    send({"jsonrpc": "2.0", "id": message["id"], "error": error})


if __name__ == "__main__":
    main()
