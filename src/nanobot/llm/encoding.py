"""What all dialects do alike when they encode a request: parts are taken from caches and joined.

Every message keeps its encoded form in `Message.forms`, every tool set in `ToolSet.forms`. A form depends on
nothing but the message and its key, so a key names everything else it depends on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from nanobot.llm.content import clean, encode
from nanobot.llm.messages import Item, JsonObject, Message, Text, ToolCall, ToolOutput
from nanobot.llm.model import Beginning, ModelRequest, ToolSet, ToolSpec

_REASONER = re.compile(r"^(o[0-9]|gpt-([5-9]|[1-9][0-9]))")
_CALLS = "calls"
"""Key in `Message.forms`: the ids of the calls of a message, NUL between them."""


class Written(NamedTuple):
    """A conversation as a dialect writes it: the form of its settled beginning, then message by message."""

    beginning: bytes
    messages: Sequence[Message]
    forms: list[bytes]


def written(
    request: ModelRequest,
    key: str,
    write: Callable[[Message], bytes],
    arrange: Callable[[Sequence[Message], list[bytes]], list[bytes]],
    *,
    open_turns: int = 1,
) -> Written:
    """The messages of `request` in the form `key`, mended so that every provider accepts them.

    What precedes the newest `open_turns` inputs is settled: it is written and arranged once and kept in
    `request.beginnings`. The conversation begins and ends with a user message, and no call id occurs twice,
    because providers without ids of their own count from zero in every answer.
    """
    messages = request.messages
    settled = _settled(messages, open_turns)
    kept = request.beginnings.get(key)
    if kept is not None and not _still_begins(messages, settled, kept):
        kept = None
    if settled and (kept is None or kept.count < settled):
        new = messages[kept.count if kept else 0 : settled]
        ids = _fresh_calls(new, kept)
        if ids is None:
            return _from_scratch(messages, key, write)
        parts = arrange(new, _encoded(new, key, write))
        form = b",".join([kept.form, *parts] if kept else parts)
        known = (kept.call_ids if kept else set[bytes]()) | ids
        kept = Beginning(settled, messages[0], messages[settled - 1], form, known)
        request.beginnings[key] = kept
    rest = _ends_with_user(messages[settled:])
    if _fresh_calls(rest, kept) is None:
        return _from_scratch(messages, key, write)
    return Written(kept.form if kept else b"", rest, _encoded(rest, key, write))


def _settled(messages: Sequence[Message], open_turns: int) -> int:
    """How many messages no later one can change: those before the input that began a turn."""
    for at in range(len(messages) - 1, 0, -1):
        is_input = messages[at].role == "user" and messages[at - 1].role == "assistant"
        if is_input and not any(isinstance(i, ToolOutput) for i in messages[at].items):
            open_turns -= 1
            if not open_turns:
                return at if messages[0].role == "user" else 0
    return 0


def _still_begins(messages: Sequence[Message], settled: int, kept: Beginning) -> bool:
    return kept.count <= settled and messages[0] is kept.first and messages[kept.count - 1] is kept.last


def _fresh_calls(messages: Sequence[Message], kept: Beginning | None) -> set[bytes] | None:
    """The call ids of `messages`; None if one occurs twice, there or in the beginning."""
    found: set[bytes] = set()
    for message in messages:
        ids = message.forms.get(_CALLS)
        if ids is None:
            ids = "\0".join(clean(c.call_id) for c in message.calls).encode()
            message.forms[_CALLS] = ids
        if not ids:
            continue
        for id in ids.split(b"\0"):
            if id in found or (kept is not None and id in kept.call_ids):
                return None
            found.add(id)
    return found


def _from_scratch(messages: Sequence[Message], key: str, write: Callable[[Message], bytes]) -> Written:
    """With repeated call ids told apart; nothing of it can be kept."""
    mended = _with_unique_calls(_ends_with_user(messages))
    return Written(b"", mended, _encoded(mended, key, write))


def _encoded(messages: Sequence[Message], key: str, write: Callable[[Message], bytes]) -> list[bytes]:
    """The form `key` of each message, written by `write` the first time."""
    forms: list[bytes] = []
    for message in messages:
        form = message.forms.get(key)
        if form is None:
            form = message.forms[key] = write(message)
        forms.append(form)
    return forms


def encoded_tools(tools: ToolSet, key: str, write: Callable[[ToolSpec], JsonObject]) -> bytes:
    """The tools as JSON objects with commas between."""
    form = tools.forms.get(key)
    if form is None:
        objects = (_extended(write(t), t.extensions) for t in tools.tools)
        form = tools.forms[key] = b",".join(encode(o) for o in objects)
    return form


def body(options: Mapping[str, Any], **lists: Iterable[bytes]) -> bytes:
    """One JSON object of `options` (those that are not None) and of `lists` whose entries are encoded."""
    parts = [encode({k: v for k, v in options.items() if v is not None})[:-1]]
    for name, entries in lists.items():
        parts += (b',"', name.encode(), b'":[', b",".join(filter(None, entries)), b"]")
    parts.append(b"}")
    return b"".join(parts)


def texts(message: Message) -> str:
    """The text items of `message`, each one cleaned, joined."""
    return "".join(clean(i.text) for i in message.items if isinstance(i, Text))


def call_id(id: str, *, limit: int = 64) -> str:
    """`id` as every provider accepts it: `^[a-zA-Z0-9_-]{1,64}$`. Of `call|item` only the first part."""
    id = id.partition("|")[0] or id
    plain = "".join(c if (c.isascii() and c.isalnum()) or c in "_-" else "_" for c in id)
    if plain == id and 0 < len(id) <= limit:
        return id
    return f"{plain[:48]}_{hashlib.sha1(clean(id).encode(), usedforsecurity=False).hexdigest()[:8]}"


def is_reasoner(model: str) -> bool:
    """Whether OpenAI's name for a model says that it reasons: such models take no temperature."""
    return bool(_REASONER.match(model.rpartition("/")[2]))


def opaque(text: str) -> str:
    """A stable name for `text` that does not give it away."""
    return hashlib.sha256(text.encode()).hexdigest()


def _ends_with_user(messages: Sequence[Message]) -> Sequence[Message]:
    if messages and messages[-1].role == "assistant":
        if len(messages) == 1:
            return (replace(messages[0], role="user", forms={}),)
        end = len(messages)
        while end and messages[end - 1].role == "assistant":
            end -= 1
        messages = messages[:end]
    if not messages or messages[0].role == "assistant":
        return (_note("(conversation continued)"), *messages)
    return messages


def _with_unique_calls(messages: Sequence[Message]) -> list[Message]:
    """Copies of the messages in which repeated call ids got a number; a result belongs to the latest call."""
    current: dict[str, str] = {}
    count: dict[str, int] = {}

    def renamed(item: Item) -> Item:
        match item:
            case ToolCall():
                count[item.call_id] = n = count.get(item.call_id, 0) + 1
                current[item.call_id] = item.call_id if n == 1 else f"{item.call_id}_{n}"
                return item if n == 1 else replace(item, call_id=current[item.call_id])
            case ToolOutput():
                id = current.get(item.call_id, item.call_id)
                return item if id == item.call_id else replace(item, call_id=id)
            case _:
                return item

    copies: list[Message] = []
    for message in messages:
        items = tuple(renamed(i) for i in message.items)
        same = all(a is b for a, b in zip(items, message.items, strict=True))
        copies.append(message if same else replace(message, items=items, forms={}))
    return copies


def _note(text: str) -> Message:
    return Message(id="", role="user", items=(Text("", text),))


def _extended(tool: JsonObject, extensions: Mapping[str, Any]) -> JsonObject:
    """`tool` with what the configuration adds to it: "" is ignored, `remove` names keys to leave out."""
    if not extensions:
        return tool
    removed: Sequence[str] = extensions.get("remove") or ()
    merged = tool | {k: v for k, v in extensions.items() if k != "remove" and v != ""}
    return {k: v for k, v in merged.items() if k not in removed}
