"""The tables as they are now. `migrations` is how a file gets there; a test holds the two together."""

from __future__ import annotations

from sqlalchemy import (
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()


def _thread_id(*, primary_key: bool = False) -> Column[str]:
    owner = ForeignKey("threads.id", ondelete="CASCADE")
    return Column("thread_id", Text, owner, nullable=False, primary_key=primary_key)


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False, server_default="")


threads = Table(
    "threads",
    metadata,
    Column("id", Text, primary_key=True),
    Column("key", Text),
    _text("account"),
    _text("agent"),
    _text("title"),
    _text("kind"),
    _text("folder"),
    _text("created"),
    _text("updated"),
    UniqueConstraint("account", "key"),
    Index("threads_recent", "account", "updated"),
)

messages = Table(
    "messages",
    metadata,
    Column("seq", Integer, primary_key=True),
    _thread_id(),
    Column("id", Text, nullable=False),
    Column("raw", LargeBinary, nullable=False),
    UniqueConstraint("thread_id", "id"),
    Index("messages_in_order", "thread_id", "seq"),
)
"""`seq` rises with every message of the file, so it orders the messages of each thread."""

turns = Table(
    "turns",
    metadata,
    Column("id", Text, primary_key=True),
    _thread_id(),
    _text("agent"),
    _text("started"),
    _text("stop"),
    _text("owner"),
    Index("turns_by_stop", "thread_id", "stop"),
)

tool_calls = Table(
    "tool_calls",
    metadata,
    _thread_id(primary_key=True),
    Column("call_id", Text, primary_key=True),
    Column("turn_id", Text, nullable=False),
    _text("name"),
    Column("state", Text, nullable=False),
    _text("started"),
    Index("tool_calls_by_state", "thread_id", "state"),
)
"""The ledger: what was asked of the world, and whether the answer is known."""

grants = Table(
    "grants",
    metadata,
    Column("issuer", Text, primary_key=True),
    Column("resource", Text, primary_key=True),
    Column("account", Text, primary_key=True),
    Column("server", Text, primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
    _text("updated"),
    UniqueConstraint("server", "account"),
)
"""What authorization servers gave us; `sealed` is read and written by `grants.Grants` alone."""

credentials = Table(
    "credentials",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    _text("owner"),
    Column("body", LargeBinary, nullable=False),
    Column("used", Integer, nullable=False),
    Column("expires", Integer, nullable=False),
    Index("credentials_by_owner", "owner"),
    Index("credentials_by_end", "expires"),
)
"""What we gave out to clients; `body` is read and written by `credentials.Credentials` alone."""

mcp_sessions = Table(
    "mcp_sessions",
    metadata,
    Column("id", Text, primary_key=True),
    _text("account"),
    Column("revision", Integer, nullable=False),
    Column("state", LargeBinary, nullable=False),
    Column("used", Integer, nullable=False),
    Index("mcp_sessions_by_use", "used"),
)
"""Sessions of MCP clients; `state` is opaque here, `used` is in seconds since the epoch."""

eras = Table(
    "eras",
    metadata,
    Column("definition", Text, primary_key=True),
    Column("era", Text, nullable=False),
    Column("until", Float, nullable=False),
)
"""What servers spoke, by the digest of their definition; `until` is in seconds since the epoch."""

mcp_tasks = Table(
    "mcp_tasks",
    metadata,
    Column("id", Text, primary_key=True),
    _text("account"),
    Column("process", Text, nullable=False),
    Column("state", LargeBinary, nullable=False),
    Column("until", Integer, nullable=False),
    Index("mcp_tasks_by_end", "until"),
)
"""Calls of MCP clients that come back for the result; `state` is opaque here, `until` in seconds since the
epoch."""

leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("until", Float, nullable=False),
)
"""Who does what only one process may do; `until` is in seconds since the epoch."""
