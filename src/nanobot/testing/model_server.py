"""A scripted model provider: speaks three dialects over real HTTP, streamed and plain.

    python -m nanobot.testing.model_server --port 0

prints its base URL (`http://127.0.0.1:<port>/v1`). What it answers is a `Reply`, found in this order:

1. the queue that tests fill: `ModelServer.queue`, or `POST /control/replies` with a JSON list of replies;
2. markers in the newest user message: every `[[{…}]]` in its text is one reply, one per round of the turn,
   `hi [[{"calls": [{"name": "clock"}]}]] [[{"text": "It is late."}]]`;
3. the default reply.

The round is read from the request alone, so any number of conversations can be driven at once. An answer
without pauses is encoded once and then sent in one write, with fresh ids. `GET /control/requests` gives
what was received.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, cast

import msgspec

from nanobot.testing.model_dialects import DIALECTS, ID, Dialect
from nanobot.testing.model_reply import MARKER, Reply, ScriptedCall, replies_in

__all__ = ["ModelServer", "Received", "Reply", "ScriptedCall", "main", "model_server"]

MAX_REQUEST: Final = 256 * 1024 * 1024
MAX_PREPARED: Final = 1000
KEPT_BY_PROGRAM: Final = 20
"""Requests the program remembers: under load they can be large and many."""
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    429: "Too Many Requests",
}
_END: Final = b"0\r\n\r\n"
_MARKER: Final = MARKER.encode()
_STREAM: Final = (b'"stream":true', b'"stream": true')


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it arrived. `path` has no query; header names are lower case."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        return msgspec.json.decode(self.body)


@dataclass(slots=True, kw_only=True)
class ModelServer:
    """The script and the record of one server."""

    default: Reply
    models: Sequence[str]
    requests: deque[Received]
    """The newest requests for an answer, oldest first."""
    port: int = 0
    count: int = 0
    """Answers so far."""
    connections: int = 0
    """Open connections."""
    waiting: deque[Reply] = field(default_factory=deque[Reply])
    prepared: dict[tuple[int, bool, bytes], list[bytes]] = field(
        default_factory=dict[tuple[int, bool, bytes], list[bytes]]
    )
    """Encoded answers, cut where the id goes, by dialect, stream and reply."""

    @property
    def url(self) -> str:
        """The base URL, as a provider's `baseURL`."""
        return f"http://127.0.0.1:{self.port}/v1"

    def queue(self, *replies: Reply) -> None:
        """Answer the next requests with `replies`, before any marker is looked at."""
        self.waiting.extend(replies)

    def reply_to(self, dialect: Dialect, body: dict[str, Any]) -> Reply:
        """The reply the script has for a request."""
        if self.waiting:
            return self.waiting.popleft()
        text, rounds = dialect.newest(body)
        if MARKER not in text or not (replies := replies_in(text)):
            return self.default
        return replies[rounds] if rounds < len(replies) else Reply(text="The script has ended.")

    def answer(self, dialect: Dialect, reply: Reply, *, stream: bool) -> bytes:
        """The whole answer, head included, with ids of its own."""
        key = (id(dialect), stream, msgspec.msgpack.encode(reply))
        parts = self.prepared.get(key)
        if parts is None:
            head, frames = _frames(dialect, reply, stream=stream)
            whole = head + b"".join(map(_chunk, frames)) + (b"" if _is_cut(reply) else _END)
            parts = whole.split(ID)
            if len(self.prepared) < MAX_PREPARED:
                self.prepared[key] = parts
        return (b"%08x" % self.count).join(parts)


@asynccontextmanager
async def model_server(
    default: Reply | None = None,
    *,
    models: Sequence[str] = ("scripted-model",),
    port: int = 0,
    keep: int = 1000,
) -> AsyncGenerator[ModelServer]:
    """A running server on loopback that remembers `keep` requests; leaving closes it and its connections."""
    script = ModelServer(
        default=default or Reply(text="Hello from the scripted model."),
        models=models,
        requests=deque(maxlen=keep),
    )
    connections: set[_Connection] = set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(script, connections), "127.0.0.1", port)
    script.port = server.sockets[0].getsockname()[1]
    try:
        yield script
    finally:
        server.close()
        for connection in tuple(connections):
            connection.abort()
        await server.wait_closed()


class _Connection(asyncio.Protocol):
    """One client. Requests are answered one after another; timers drive slow answers."""

    def __init__(self, script: ModelServer, connections: set[_Connection]) -> None:
        self._script = script
        self._connections = connections
        self._buffer = bytearray()
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._connections.add(self)
        self._script.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._script.connections -= 1
        if self._timer:
            self._timer.cancel()

    def abort(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()

    def _next(self) -> None:
        while not self._busy and (request := self._take()):
            self._busy = True
            self._serve(*request)

    def _take(self) -> tuple[str, Received] | None:
        """Method and content of the next complete request in the buffer."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = int(headers.get("content-length", 0))
        if size > MAX_REQUEST:
            self.abort()
            return None
        if len(self._buffer) < end + 4 + size:
            return None
        body = bytes(self._buffer[end + 4 : end + 4 + size])
        del self._buffer[: end + 4 + size]
        method, target = first.split(" ")[:2]
        return method, Received(target.partition("?")[0], headers, body)

    def _serve(self, method: str, received: Received) -> None:
        script = self._script
        tail = received.path.rpartition("/")[2]
        if method == "POST" and (dialect := DIALECTS.get(tail)):
            self._answer(dialect, received)
        elif tail == "models":
            models = [{"id": m, "object": "model", "created": 0, "owned_by": "test"} for m in script.models]
            self._document({"object": "list", "data": models})
        elif method == "POST" and received.path == "/control/replies":
            try:
                script.queue(*msgspec.json.decode(received.body, type=list[Reply]))
                self._document({"waiting": len(script.waiting)})
            except msgspec.DecodeError as e:
                self._document({"error": {"message": str(e)}}, status=400)
        elif received.path == "/control/requests":
            newest = [{"path": r.path, "headers": r.headers, "body": r.json} for r in script.requests]
            self._document({"count": script.count, "requests": newest})
        else:
            self._document({"error": {"message": f"no such path: {received.path}"}}, status=404)

    def _answer(self, dialect: Dialect, received: Received) -> None:
        script = self._script
        script.count += 1
        script.requests.append(received)
        reply, stream = self._reply_to(dialect, received.body)
        stream = stream and not reply.plain
        if reply.is_instant:
            self._transport.write(script.answer(dialect, reply, stream=stream))
            self._done(cut=_is_cut(reply))
            return
        number = b"%08x" % script.count
        head, frames = _frames(dialect, reply, stream=stream)
        steps = deque([(reply.wait_ms, head)])
        for frame in frames:
            steps += [(reply.pause_ms, _chunk(b": keep-alive\n\n"))] * reply.comments
            steps += [(reply.pause_ms, _chunk(dialect.ping))] * reply.pings
            data = frame.replace(ID, number)
            size = reply.split or len(data)
            for start in range(0, len(data), size):
                steps.append((0 if start else reply.pause_ms, _chunk(data[start : start + size])))
        if not _is_cut(reply):
            steps.append((0, _END))
        self._play(steps, cut=_is_cut(reply))

    def _play(self, steps: deque[tuple[float, bytes]], *, cut: bool) -> None:
        """Write each step after its pause in milliseconds."""
        if not steps:
            self._done(cut=cut)
            return
        pause_ms, data = steps.popleft()

        def write() -> None:
            self._transport.write(data)
            self._play(steps, cut=cut)

        self._timer = asyncio.get_running_loop().call_later(pause_ms / 1000, write)

    def _reply_to(self, dialect: Dialect, body: bytes) -> tuple[Reply, bool]:
        """The reply, and whether it is wanted as a stream."""
        script = self._script
        if not script.waiting and _MARKER not in body:  # the usual case of a benchmark: nothing to decode
            return script.default, any(written in body for written in _STREAM)
        try:
            decoded: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
            return script.reply_to(dialect, decoded), bool(decoded.get("stream"))
        except msgspec.DecodeError as e:
            return Reply(status=400, error_message=f"unreadable request or script: {e}"), False

    def _document(self, body: Any, *, status: int = 200) -> None:
        data = msgspec.json.encode(body)
        head = _head(status, "application/json", {"content-length": str(len(data))})
        self._transport.write(head + data)
        self._done(cut=False)

    def _done(self, *, cut: bool) -> None:
        self._busy = False
        if cut:
            self._transport.close()
        elif self._buffer:
            asyncio.get_running_loop().call_soon(self._next)


def _frames(dialect: Dialect, reply: Reply, *, stream: bool) -> tuple[bytes, list[bytes]]:
    """The head of an answer, and its body in the pieces that are sent apart."""
    headers = {"transfer-encoding": "chunked", **reply.headers}
    if reply.retry_after:
        headers["retry-after"] = reply.retry_after
    if reply.status != 200:
        return _head(reply.status, "application/json", headers), [msgspec.json.encode(dialect.error(reply))]
    if not stream:
        return _head(200, "application/json", headers), [msgspec.json.encode(dialect.document(reply))]
    events = dialect.stream(reply)
    if reply.error_after is not None:
        events = [*events[: reply.error_after], dialect.stream_error(reply)]
    if (sent := reply.cut_after if reply.cut_after is not None else reply.end_after) is not None:
        events = events[:sent]
    return _head(200, "text/event-stream; charset=utf-8", headers), events


def _is_cut(reply: Reply) -> bool:
    return reply.cut_after is not None and reply.status == 200


def _head(status: int, kind: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}", f"content-type: {kind}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until interrupted; the base URL is the first line of the output."""
    parser = argparse.ArgumentParser(
        prog="python -m nanobot.testing.model_server", description="A scripted model provider on loopback."
    )
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--text", default="Hello from the scripted model.", help="the default answer")
    parser.add_argument("--chunks", type=int, default=0, help="pieces of the default answer; 0: its words")
    chosen = parser.parse_args(arguments)

    async def serve() -> None:
        default = Reply(text=chosen.text, chunks=chosen.chunks)
        async with model_server(default, port=chosen.port, keep=KEPT_BY_PROGRAM) as server:
            sys.stdout.write(server.url + "\n")
            sys.stdout.flush()
            await asyncio.get_running_loop().create_future()

    with suppress(KeyboardInterrupt):
        _runner()(serve())


def _runner() -> Callable[[Any], Any]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return cast("Callable[[Any], Any]", uvloop.run)


if __name__ == "__main__":
    main()
