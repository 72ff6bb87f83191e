"""The in-memory transport: two ends of one duplex, in one process."""

from __future__ import annotations

from dataclasses import dataclass

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream


@dataclass(frozen=True, slots=True)
class MemoryEnd:
    """One end; satisfies `Duplex`."""

    outgoing: MemoryObjectSendStream[bytes]
    incoming: MemoryObjectReceiveStream[bytes]

    async def send(self, message: bytes) -> None:
        await self.outgoing.send(message)

    async def receive(self) -> bytes:
        return await self.incoming.receive()

    async def aclose(self) -> None:
        self.outgoing.close()
        self.incoming.close()


def memory_pair(buffer: int = 64) -> tuple[MemoryEnd, MemoryEnd]:
    """Two connected ends. A full buffer (messages) makes the sender wait."""
    left_send, right_receive = anyio.create_memory_object_stream[bytes](buffer)
    right_send, left_receive = anyio.create_memory_object_stream[bytes](buffer)
    return MemoryEnd(left_send, left_receive), MemoryEnd(right_send, right_receive)
