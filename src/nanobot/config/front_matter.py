"""The YAML block at the top of a Markdown file."""

from __future__ import annotations

from dataclasses import dataclass

from nanobot.config.diagnostics import Diagnostics
from nanobot.config.nodes import Entries, Node
from nanobot.config.places import Origin


@dataclass(frozen=True, slots=True)
class Markdown:
    """`meta` is None when the block could not be read. `body_line`: where the text below it begins."""

    meta: Entries | None
    body: str
    body_line: int


def parse_markdown(text: str, source: str, found: Diagnostics) -> Markdown:
    """Split `text` into the mapping between `---` lines and the body, stripped of surrounding space.

    Only an unindented `---` closes the block, so that one inside a block scalar is text.
    """
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != "---":
        body, line = _body(lines, 0)
        return Markdown(Entries({}, Origin(source, 1)), body, line)
    end = next((i for i in range(1, len(lines)) if lines[i].rstrip() == "---"), None)
    if end is None:
        message = "The front matter that begins here is not closed by a line `---`."
        found.add("error", "front-matter-unclosed", Origin(source, 1), message)
        return Markdown(None, "", 1)
    body, line = _body(lines, end + 1)
    return Markdown(_block("\n".join(lines[1:end]), source, found), body, line)


def _block(text: str, source: str, found: Diagnostics) -> Entries | None:
    from nanobot.config.yaml_text import parse_yaml  # 50 ms that other documents need not pay

    inner = Diagnostics()
    node: Node | None = parse_yaml(text, source, inner, first_line=2)
    problems = inner.sorted()
    for problem in problems:
        code = "front-matter-invalid" if problem.code == "syntax" else problem.code
        found.add("error", code, problem.origin, problem.message, hint=problem.hint)
    if isinstance(node, Entries):
        return node
    if any(problem.code == "syntax" for problem in problems):
        return None
    if node is None or getattr(node, "value", "") is None:
        return Entries({}, Origin(source, 2))
    found.add("error", "front-matter-invalid", node.at, "Front matter must be a mapping of keys to values.")
    return None


def _body(lines: list[str], start: int) -> tuple[str, int]:
    first = next((i for i in range(start, len(lines)) if lines[i].strip()), start)
    return "\n".join(lines[start:]).strip(), first + 1
