"""Plain text for terminals: nothing a model or a tool says reaches one as a control sequence."""

from __future__ import annotations

import re
from typing import Any

from nanobot.llm.messages import Content, Message, Text, ToolCall, ToolOutput

_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """`text` with control characters and direction overrides written out; newlines and tabs stay."""
    text = text.replace("\r\n", "\n")
    return _UNSAFE.sub(lambda m: f"\\x{ord(m[0]):02x}" if ord(m[0]) < 256 else f"\\u{ord(m[0]):04x}", text)


def one_line(text: str) -> str:
    """`text` on one line."""
    return " ".join(visible(text).split())


def shorten(text: str, width: int) -> str:
    """One line of at most `width` characters."""
    line = one_line(text)
    return line if len(line) <= width else line[: width - 1] + "…"


def call_line(call: ToolCall) -> str:
    """`name(arguments)` on one line."""
    return f"{visible(call.name)}({shorten(call.arguments, 60)})"


def block_text(block: dict[str, Any]) -> str:
    """One MCP content block as text; what is no text is named."""
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "resource" if "text" in block.get("resource", {}):
            return str(block["resource"]["text"])
        case kind:
            about = block.get("uri") or block.get("mimeType") or block.get("resource", {}).get("uri") or ""
            return f"[{kind} {about}]"


def transcript(message: Message) -> str:
    """A stored message as lines of a transcript."""
    lines: list[str] = []
    for item in message.items:
        match item:
            case Text(_, text):
                lines.append(f"{'you' if message.role == 'user' else 'agent'}: {visible(text)}")
            case Content(_, body):
                lines.append(visible(block_text(body)))
            case ToolCall():
                lines.append(f"  ● {call_line(item)}")
            case ToolOutput():
                mark = "✗" if item.is_error else "✓"
                lines.append(f"  {mark} {shorten(' '.join(map(block_text, item.content)), 100)}")
            case _:
                pass
    return "\n".join(lines)
