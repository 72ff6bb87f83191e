"""An MCP server on stdio whose tool `attempt` runs Python: how tests look around from inside a sandbox.

Standard library only. The code leaves its answer in `result`; an exception is told as its type's name.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

TOOLS = [{"name": "attempt", "inputSchema": {"type": "object"}}]


def attempt(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {"result": None}
    try:
        exec(code, names)
    except BaseException as e:
        return {"failed": type(e).__name__, "because": str(e)}
    return {"result": names["result"]}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        match request["method"]:
            case "initialize":
                result: dict[str, Any] = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "probe", "version": str(os.getpid())},
                }
            case "tools/list":
                result = {"tools": TOOLS}
            case "tools/call":
                result = attempt(request["params"]["arguments"]["code"])
            case _:
                result = {}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
