"""The official SDK's server over HTTP+SSE, run as a process; prints the address of its stream."""

from __future__ import annotations

import os
import socket

import uvicorn
from tests.peers.sdk_server import server


def main() -> None:
    listener = socket.create_server(("127.0.0.1", int(os.environ.get("PORT", "0"))))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/sse", flush=True)
    app = server.sse_app()
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
