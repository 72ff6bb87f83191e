"""Messages and items: the provider-neutral form of a conversation, and its JSON.

A message is `{id, created, role, items}`. Tool results live in messages of role `user`. Items are flat JSON
objects told apart by `type`; an unknown `type` is kept as it came and given back unchanged.
A `Message` is never changed after it was made: it carries its own encoded forms with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

Role = Literal["user", "assistant"]
JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ProviderData:
    """Opaque material a provider wants back. Sent only where `kind` is the dialect's and `scope` is equal.

    `scope` = provider name + "|" + base URL + "|" + model. Never in logs, events or exports.
    """

    kind: str
    scope: str
    data: Any

    def is_for(self, kind: str, scope: str) -> bool:
        """Whether it may be sent in this dialect to this scope."""
        return self.kind == kind and self.scope == scope


@dataclass(frozen=True, slots=True)
class Text:
    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """Any MCP content block that is not plain text: `body` is the block as MCP writes it, with `type`."""

    id: str
    body: JsonObject


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the model asked for. `arguments` is JSON text exactly as the model wrote it."""

    id: str
    call_id: str
    name: str
    arguments: str
    target: str = ""
    target_type: Literal["", "tool", "agent"] = ""
    provider_data: ProviderData | None = None


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a call gave. `content` is a list of MCP content blocks."""

    id: str
    call_id: str
    content: Sequence[JsonObject]
    is_error: bool = False
    structured: Any = None
    meta: Mapping[str, Any] | None = None
    agent: str = ""
    model: str = ""
    stop_reason: str = ""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The model's own thinking: readable `summary` parts; what the provider wants back is `provider_data`."""

    id: str
    summary: Sequence[str] = ()
    provider_data: ProviderData | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """An item of a kind this version does not know; `body` is kept byte-equal in meaning."""

    id: str
    body: JsonObject


Item = Text | Content | ToolCall | ToolOutput | Reasoning | Unknown


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a thread. `created` is RFC 3339 in UTC. `forms` caches its encoded forms, by key."""

    id: str
    role: Role
    items: tuple[Item, ...]
    created: str = ""
    meta: Mapping[str, Any] | None = None
    forms: dict[str, bytes] = field(default_factory=dict[str, bytes], compare=False, repr=False)

    @property
    def text(self) -> str:
        """The text items joined; "" if there are none."""
        return "".join(i.text for i in self.items if isinstance(i, Text))

    @property
    def calls(self) -> list[ToolCall]:
        return [i for i in self.items if isinstance(i, ToolCall)]

    def json(self, *, private: bool = False) -> JsonObject:
        """The public JSON form; with `private` also the provider data, as the store keeps it."""
        body: JsonObject = {"id": self.id}
        if self.created:
            body["created"] = self.created
        body["role"] = self.role
        body["items"] = [item_json(i, private=private) for i in self.items]
        if self.meta:
            body["_meta"] = dict(self.meta)
        return body


def item_json(item: Item, *, private: bool = False) -> JsonObject:
    """One complete item as JSON; with `private` also the provider data."""
    match item:
        case Text(id, text):
            return {"id": id, "hasMore": False, "partial": False, "type": "text", "text": text}
        case Content(id, body):
            return {"id": id, "hasMore": False, "partial": False, **body}
        case ToolCall():
            body = {"id": item.id, "type": "tool", "name": item.name, "callID": item.call_id}
            body["arguments"] = item.arguments
            if item.target:
                body["target"] = item.target
            if item.target_type:
                body["targetType"] = item.target_type
            return _with_provider_data(body, item.provider_data, private)
        case ToolOutput():
            return {"id": item.id, "type": "tool", "callID": item.call_id, "output": output_json(item)}
        case Reasoning():
            body = {"id": item.id, "type": "reasoning", "summary": [{"text": s} for s in item.summary]}
            return _with_provider_data(body, item.provider_data, private)
        case Unknown(_, body):
            return dict(body)


def output_json(item: ToolOutput) -> JsonObject:
    """The `output` object of a tool result."""
    output: JsonObject = {"content": list(item.content)}
    if item.is_error:
        output["isError"] = True
    if item.structured is not None:
        output["structuredContent"] = item.structured
    if item.agent:
        output["agent"] = item.agent
    if item.model:
        output["model"] = item.model
    if item.stop_reason:
        output["stopReason"] = item.stop_reason
    if item.meta:
        output["_meta"] = dict(item.meta)
    return output


def message_from_json(body: Mapping[str, Any]) -> Message:
    """The message that `Message.json` wrote. Unknown items survive; a missing id becomes ""."""
    items: list[Item] = []
    for raw in body.get("items") or ():
        items.extend(_items_from_json(raw))
    return Message(
        id=body.get("id", ""),
        role=body.get("role", "user"),
        items=tuple(items),
        created=body.get("created", ""),
        meta=body.get("_meta"),
    )


def encode_message(message: Message) -> bytes:
    """The form the store keeps (private parts included)."""
    return msgspec.json.encode(message.json(private=True))


def decode_message(raw: bytes) -> Message:
    """The inverse of `encode_message`."""
    return message_from_json(msgspec.json.decode(raw))


def _items_from_json(raw: JsonObject) -> list[Item]:
    id = str(raw.get("id", ""))
    match raw.get("type"):
        case "text":
            return [Text(id, raw.get("text", ""))]
        case "image" | "audio" | "resource" | "resource_link":
            return [Content(id, {k: v for k, v in raw.items() if k not in ("id", "hasMore", "partial")})]
        case "tool" if "name" in raw or "output" in raw:
            found: list[Item] = []
            if "name" in raw:
                found.append(
                    ToolCall(
                        id=id,
                        call_id=raw.get("callID", ""),
                        name=raw["name"],
                        arguments=raw.get("arguments", ""),
                        target=raw.get("target", ""),
                        target_type=raw.get("targetType", ""),
                        provider_data=_provider_data(raw),
                    )
                )
            if "output" in raw:
                output: JsonObject = raw["output"] or {}
                found.append(
                    ToolOutput(
                        id=id,
                        call_id=raw.get("callID", ""),
                        content=output.get("content") or [],
                        is_error=bool(output.get("isError")),
                        structured=output.get("structuredContent"),
                        meta=output.get("_meta"),
                        agent=output.get("agent", ""),
                        model=output.get("model", ""),
                        stop_reason=output.get("stopReason", ""),
                    )
                )
            return found
        case "reasoning":
            summary = [part.get("text", "") for part in raw.get("summary") or ()]
            return [Reasoning(id, summary, _provider_data(raw))]
        case _:
            return [Unknown(id, raw)]


def _with_provider_data(body: JsonObject, data: ProviderData | None, private: bool) -> JsonObject:
    if private and data is not None:
        body["providerData"] = {"kind": data.kind, "scope": data.scope, "data": data.data}
    return body


def _provider_data(raw: JsonObject) -> ProviderData | None:
    kept = raw.get("providerData")
    return ProviderData(kept["kind"], kept["scope"], kept["data"]) if kept else None
