"""What a model can be shown of MCP content, as few kinds of parts that every dialect knows how to write.

Whatever cannot be shown becomes a one-line note, so that the model knows that something is there.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from nanobot.llm.messages import Content, JsonObject, Message, ToolOutput

MAX_IMAGE_CHARS: Final = 5 * 1024 * 1024 * 4 // 3
"""Base64 characters of the largest image that is passed on (5 MiB of bytes)."""
_MAGIC: Final = (
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
)
_TEXT_TYPES: Final = (
    "text/",
    "application/json",
    "application/xml",
    "application/javascript",
    "image/svg+xml",
)


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """`data` is base64."""

    mime: str
    data: str


@dataclass(frozen=True, slots=True)
class AudioPart:
    mime: str
    data: str


@dataclass(frozen=True, slots=True)
class FilePart:
    """A PDF."""

    mime: str
    data: str
    name: str


Part = TextPart | ImagePart | AudioPart | FilePart


def parts_of(blocks: Iterable[JsonObject], *, images: bool = True) -> list[Part]:
    """The parts of MCP content `blocks`, blank texts left out. Without `images`, images become notes."""
    found: list[Part] = []
    for block in blocks:
        part = _part(block)
        if isinstance(part, ImagePart) and not images:
            part = TextPart(f"[image {part.mime}: this model cannot see images]")
        if not isinstance(part, TextPart) or part.text.strip():
            found.append(part)
    return found


def has_media(message: Message) -> bool:
    """Whether `message` holds anything but text."""
    for item in message.items:
        if isinstance(item, Content):
            return True
        if isinstance(item, ToolOutput) and any(b.get("type") != "text" for b in item.content):
            return True
    return False


def clean(text: str) -> str:
    """`text` without NUL characters and halves of surrogate pairs, which providers and databases refuse."""
    if "\0" in text:
        text = text.replace("\0", "")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def encode(value: Any) -> bytes:
    """JSON of anything that came from JSON, lone surrogates replaced."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_cleaned(value))


def arguments_of(text: str) -> JsonObject | None:
    """The JSON object that `text` is (blank: an empty one); None if it is none."""
    if not text.strip():
        return {}
    try:
        value = msgspec.json.decode(clean(text))
    except (msgspec.DecodeError, RecursionError):
        return None
    return cast("JsonObject", value) if isinstance(value, dict) else None


def error_text(text: str) -> str:
    """`text` of a failed call, for dialects that have no flag for failure."""
    return text if text.startswith("Error: ") else f"Error: {text}"


def _part(block: Mapping[str, Any]) -> Part:
    match block.get("type"):
        case "text":
            return TextPart(clean(str(block.get("text", ""))))
        case "image":
            return _image(str(block.get("mimeType", "")), str(block.get("data", "")))
        case "audio":
            return AudioPart(str(block.get("mimeType", "")), str(block.get("data", "")))
        case "resource":
            return _resource(block)
        case "resource_link":
            return TextPart(_line(block))
        case kind:
            return TextPart(f"[{kind}: content of a kind that is not shown to models]")


def _resource(block: Mapping[str, Any]) -> Part:
    resource: dict[str, Any] = block.get("resource") or {}
    annotations: dict[str, Any] = block.get("annotations") or resource.get("annotations") or {}
    audience = annotations.get("audience")
    if audience and "assistant" not in audience:
        return TextPart(_line(resource))
    mime = str(resource.get("mimeType", ""))
    if "text" in resource:
        return TextPart(clean(str(resource["text"])))
    data = str(resource.get("blob", ""))
    if mime.startswith(_TEXT_TYPES):
        try:
            return TextPart(clean(base64.b64decode(data).decode("utf-8", "replace")))
        except binascii.Error:
            return TextPart(_line(resource))
    if mime in ("image/png", "image/jpeg", "image/webp", "image/gif"):
        return _image(mime, data)
    if mime == "application/pdf":
        return FilePart(mime, data, _name(resource) or "document.pdf")
    return TextPart(_line(resource))


def _image(mime: str, data: str) -> Part:
    for start, real in _MAGIC:
        if data.startswith(start):
            if len(data) > MAX_IMAGE_CHARS:
                return TextPart(f"[image {real}: too large to be shown]")
            return ImagePart(real, data)
    return TextPart(f"[image {mime}: not a PNG, JPEG, GIF or WebP file]")


def _name(resource: Mapping[str, Any]) -> str:
    return str(resource.get("name") or str(resource.get("uri", "")).rpartition("/")[2])


def _line(resource: Mapping[str, Any]) -> str:
    words = (_name(resource), str(resource.get("uri", "")), str(resource.get("mimeType", "")))
    return "[resource: " + " ".join(clean(w) for w in words if w) + "]"


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(str(k)): _cleaned(v) for k, v in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_cleaned(v) for v in cast("Iterable[Any]", value)]
    return value
