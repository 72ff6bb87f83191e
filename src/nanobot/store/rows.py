"""What the store keeps, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

CallState = Literal["waiting", "started", "done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadRow:
    """A stored conversation. `key` is unique per account (`cli:direct`); times are RFC 3339 in UTC.

    `folder` is the absolute path of its working folder. `kind`: `chat` for people, `api` for programs.
    """

    id: str
    key: str | None = None
    account: str = ""
    agent: str = ""
    title: str = ""
    kind: str = "chat"
    folder: str = ""
    created: str = ""
    updated: str = ""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as it is kept: its id and its encoded form (`llm.messages.encode_message`)."""

    id: str
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One tool call on the record. `started` and not `done` after a crash means: outcome unknown."""

    thread_id: str
    turn_id: str
    call_id: str
    name: str
    state: CallState
    started: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRow:
    """One turn. `stop` is "" while it runs or waits; if `owner` is not alive then, it was interrupted.

    `owner` is the process that carries it out (`processes`), "" for one that nobody knows.
    """

    id: str
    thread_id: str
    agent: str
    started: str
    stop: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class RecordedThread:
    """Everything that happened in a thread, at one moment.

    `messages` are in the order they were stored, `turns` those without a stop, `calls` those not `done`.
    """

    messages: Sequence[StoredMessage]
    turns: Sequence[TurnRow]
    calls: Sequence[LedgerEntry]

    @property
    def last(self) -> str:
        """The id of the last message, "" if there is none."""
        return self.messages[-1].id if self.messages else ""


@dataclass(frozen=True, slots=True)
class GrantRow:
    """What an authorization server gave an account for one MCP server.

    `issuer` names the authorization server, `resource` what its tokens are for, `server` the URL we use.
    `content` (registration, endpoints, tokens) is opaque here and sealed in the file.
    """

    issuer: str
    resource: str
    account: str
    server: str
    content: bytes = field(default=b"", repr=False)
