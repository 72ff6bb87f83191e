"""What a person or a program says to an agent, and the message it becomes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import unquote

import msgspec

from nanobot.errors import UsageError
from nanobot.ids import new_id
from nanobot.llm.content import clean
from nanobot.llm.messages import Content, Item, Message, Text

MOST_ATTACHMENTS: Final = 20
MOST_ATTACHED_BYTES: Final = 25 * 1024 * 1024
_CHAT_ARGUMENTS: Final = frozenset({"prompt", "attachments", "_meta"})
_DATA_URI: Final = re.compile(r"data:([^;,]*)(?:;[^;,]+)*;base64,([A-Za-z0-9+/\s]*+={0,2}\s*+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One input: `text`, and further MCP content blocks. `meta` is kept with the message."""

    text: str = ""
    content: tuple[dict[str, Any], ...] = ()
    meta: Mapping[str, Any] | None = None


def user_message(input: Input, *, created: str = "", meta: Mapping[str, Any] | None = None) -> Message:
    """The message of `input`, with an id of its own."""
    items: list[Item] = []
    if input.text:
        items.append(Text(new_id("item"), clean(input.text)))
    for block in input.content:
        if block.get("type") == "text":
            items.append(Text(new_id("item"), clean(str(block.get("text") or ""))))
        else:
            items.append(Content(new_id("item"), block))
    marks = {**(input.meta or {}), **(meta or {})}
    return Message(new_id("msg"), "user", tuple(items), created, marks or None)


def prompt_of(arguments: Mapping[str, Any]) -> Any:
    """What an agent is told by the arguments of a `chat-with-…` call; need not be a text."""
    if arguments.keys() <= _CHAT_ARGUMENTS:
        return arguments.get("prompt")
    return msgspec.json.encode(arguments).decode()


def chat_input(arguments: Mapping[str, Any]) -> Input:
    """The arguments of a `chat-with-…` call as an input.

    Other arguments than `prompt` and `attachments` are somebody's own protocol: all of them, as JSON text,
    are the prompt then. Raises `UsageError` for attachments that cannot be used.
    """
    prompt = prompt_of(arguments)
    if not arguments.keys() <= _CHAT_ARGUMENTS:
        return Input(text=prompt)
    if not isinstance(prompt, str):
        raise UsageError("`prompt` must be a string: what to say to the agent.")
    given: object = arguments.get("attachments") or []
    if not isinstance(given, list):
        raise UsageError("`attachments` must be a list of objects with a `url`.")
    attachments = cast("list[Any]", given)
    return Input(text=prompt, content=_attached(attachments))


def _attached(attachments: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    if len(attachments) > MOST_ATTACHMENTS:
        raise UsageError(f"{len(attachments)} attachments; at most {MOST_ATTACHMENTS} can be sent at once.")
    blocks = [_block(attachment) for attachment in attachments]
    size = sum(_encoded_size(block) for block in blocks)
    if size * 3 // 4 > MOST_ATTACHED_BYTES:
        raise UsageError(
            f"The attachments are over {MOST_ATTACHED_BYTES // 2**20} MiB; send fewer or smaller ones."
        )
    return tuple(blocks)


def _encoded_size(block: Mapping[str, Any]) -> int:
    resource: Mapping[str, Any] = block.get("resource") or {}
    return len(block.get("data") or resource.get("blob") or "")


def _block(attachment: Any) -> dict[str, Any]:
    entry = cast("dict[str, Any]", attachment) if isinstance(attachment, dict) else {"url": attachment}
    url, name = entry.get("url"), str(entry.get("name") or "")
    if not isinstance(url, str) or not url:
        raise UsageError("An attachment needs a `url`: a `data:` URI or `file:///<path>`.")
    if url.startswith("data:"):
        found = _DATA_URI.fullmatch(url)
        if found is None:
            raise UsageError(f"Attachment {name or url[:40]!r} is no base64 `data:` URI.")
        mime, data = found[1] or str(entry.get("mimeType") or ""), re.sub(r"\s", "", found[2])
        if not mime or mime.startswith("image/"):
            return {"type": "image", "data": data, "mimeType": mime or "image/png"}
        resource = {"uri": f"attachment:///{name or 'unnamed'}", "mimeType": mime, "blob": data}
        return {"type": "resource", "resource": resource, "annotations": {"audience": ["assistant"]}}
    if url.startswith("file:///"):
        path = unquote(url.removeprefix("file:///"))
        if ".." in path.split("/"):
            raise UsageError(f"Attachment {path!r} is outside the thread's folder.")
        link = {"type": "resource_link", "uri": url, "name": name or path}
        return link | ({"mimeType": entry["mimeType"]} if entry.get("mimeType") else {})
    raise UsageError(f"invalid attachment URL: {url[:200]}, only data URI and file:/// URIs are supported")
