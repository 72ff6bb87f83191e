"""YAML 1.2 (core schema) to nodes with positions, bounded in depth and size.

The events of libyaml are put together here rather than by its own composer, because that recurses in C
without a bound and resolves scalars by YAML 1.1, where `on` is true and `010` is eight.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import yaml

from nanobot.config.diagnostics import Diagnostics
from nanobot.config.nodes import MAX_DEPTH, MAX_NODES, Entries, Entry, Items, Node, Scalar, Value, shown_key
from nanobot.config.places import Origin
from nanobot.config.yaml_core import resolve

_TAG = "tag:yaml.org,2002:"
_TAGS = frozenset(_TAG + name for name in ("str", "int", "float", "bool", "null", "map", "seq"))
# YAML 1.1 takes these three for line breaks, YAML 1.2 for text. They are hidden from the 1.1 parser.
_BREAKS = "\x85\u2028\u2029"
_STAND_INS = "\U0010fff0\U0010fff1\U0010fff2"
_HIDE = str.maketrans(_BREAKS, _STAND_INS)
_SHOW = str.maketrans(_STAND_INS, _BREAKS)


class _Malformed(Exception):
    def __init__(self, at: Origin, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.at, self.message, self.hint = at, message, hint


def parse_yaml(text: str, source: str, found: Diagnostics, *, first_line: int = 1) -> Node | None:
    """The one document in `text`, None if it is empty or broken; what is wrong goes to `found`.

    `first_line` is the line of `source` on which `text` begins.
    """
    hidden = any(c in text for c in _BREAKS)
    composer = _Composer(source, first_line, found, hidden=hidden)
    try:
        return composer.compose(text.translate(_HIDE) if hidden else text)
    except _Malformed as e:
        found.add("error", "syntax", e.at, e.message, hint=e.hint)
        return None


@dataclass(slots=True)
class _Frame:
    """A collection whose end was not read yet. `size` and `height` count it with aliases written out."""

    at: Origin
    anchor: str | None
    is_mapping: bool
    items: list[Node] = field(default_factory=list[Node])
    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])
    merged: list[Node] = field(default_factory=list[Node])
    key: str | None = None
    key_at: Origin | None = None
    is_merging: bool = False
    """The key is `<<`, bare: what follows is merged."""
    size: int = 1
    height: int = 1


class _Composer:
    def __init__(self, source: str, first_line: int, found: Diagnostics, *, hidden: bool) -> None:
        self._source = source
        self._first_line = first_line
        self._found = found
        self._hidden = hidden
        self._stack: list[_Frame] = []
        self._anchors: dict[str, tuple[Node, int, int]] = {}
        self._total = 0
        self._root: Node | None = None

    def compose(self, text: str) -> Node | None:
        loader: Any = (yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader)(text)
        documents = 0
        try:
            while (event := loader.get_event()) is not None and not isinstance(event, yaml.StreamEndEvent):
                if isinstance(event, yaml.DocumentStartEvent):
                    documents += 1
                    if documents > 1:
                        raise _Malformed(self._origin(event), "A second document begins; one file holds one.")
                else:
                    self._take(event)
        except yaml.MarkedYAMLError as e:
            at = self._mark(e.problem_mark or e.context_mark)
            raise _Malformed(at, f"Not valid YAML: {e.problem or e.context}.", _advice(e)) from None
        except yaml.YAMLError as e:
            message = f"Not valid YAML: {getattr(e, 'reason', 'unreadable text')}."
            raise _Malformed(self._at_index(text, getattr(e, "position", 0)), message) from None
        finally:
            loader.dispose()
        return self._root

    def _take(self, event: Any) -> None:
        at = self._origin(event)
        match event:
            case yaml.ScalarEvent():
                self._scalar(event, at)
            case yaml.AliasEvent():
                if event.anchor not in self._anchors:
                    raise _Malformed(
                        at, f"The alias *{event.anchor} has no anchor &{event.anchor} before it."
                    )
                self._add(*self._anchors[event.anchor])
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._check_tag(event, at)
                if len(self._stack) >= MAX_DEPTH:
                    raise _Malformed(at, f"Nested deeper than {MAX_DEPTH} levels.")
                self._stack.append(_Frame(at, event.anchor, isinstance(event, yaml.MappingStartEvent)))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._close(self._stack.pop())
            case _:
                pass

    def _scalar(self, event: Any, at: Origin) -> None:
        self._check_tag(event, at)
        text = cast("str", event.value)
        if self._hidden:
            text = text.translate(_SHOW)
        is_plain = not event.style and event.tag not in (_TAG + "str", "!")
        frame = self._stack[-1] if self._stack else None
        if frame is not None and frame.is_mapping and frame.key is None:
            self._start_entry(frame, text, at, is_plain=is_plain)
            if event.anchor:
                self._anchors[event.anchor] = (Scalar(text, at), 1, 1)
            return
        node = Scalar(self._resolve(text, at) if is_plain else text, at)
        if event.anchor:
            self._anchors[event.anchor] = (node, 1, 1)
        self._add(node, 1, 1)

    def _start_entry(self, frame: _Frame, key: str, at: Origin, *, is_plain: bool) -> None:
        if is_plain and key in ("", "~"):
            raise _Malformed(at, "An entry has no key.")
        frame.key, frame.key_at = key, at
        frame.is_merging = is_plain and key == "<<"
        if not frame.is_merging and (before := frame.entries.get(key)) is not None:
            self._found.add(
                "error",
                "duplicate-key",
                at,
                f"The key {shown_key(key)} is written twice: "
                f"on line {before.key_at.line} and on line {at.line}.",
                hint="delete one of them",
            )

    def _add(self, node: Node, size: int, height: int) -> None:
        """Put a finished node into the collection around it."""
        self._total += size
        if self._total > MAX_NODES:
            raise _Malformed(node.at, f"More than {MAX_NODES} values, aliases written out.")
        if not self._stack:
            self._root = node
            return
        frame = self._stack[-1]
        frame.size += size
        frame.height = max(frame.height, height + 1)
        if len(self._stack) + height > MAX_DEPTH + 1:
            raise _Malformed(node.at, f"Nested deeper than {MAX_DEPTH} levels.")
        if not frame.is_mapping:
            frame.items.append(node)
            return
        if frame.key is None or frame.key_at is None:
            if not isinstance(node, Scalar):
                raise _Malformed(node.at, "A key must be text, not a list or a mapping.")
            frame.key, frame.key_at = str(node.value), node.at
            return
        if frame.is_merging:
            frame.merged.append(node)
        else:
            frame.entries.setdefault(frame.key, Entry(frame.key_at, node))
        frame.key = frame.key_at = None
        frame.is_merging = False

    def _close(self, frame: _Frame) -> None:
        node: Node
        if frame.is_mapping:
            for merged in frame.merged:
                for source in merged.items if isinstance(merged, Items) else (merged,):
                    if not isinstance(source, Entries):
                        raise _Malformed(source.at, "`<<` takes a mapping or a list of mappings.")
                    for key, entry in source.entries.items():
                        frame.entries.setdefault(key, entry)
            node = Entries(frame.entries, frame.at)
        else:
            node = Items(tuple(frame.items), frame.at)
        if frame.anchor:
            self._anchors[frame.anchor] = (node, frame.size, frame.height)
        self._total -= frame.size - 1  # its children were counted one by one; `_add` counts it as a whole
        self._add(node, frame.size, frame.height)

    def _resolve(self, text: str, at: Origin) -> Value:
        try:
            return resolve(text)
        except ValueError:
            raise _Malformed(
                at, "Infinity and NaN have no place here.", "put it in quotes if text is meant"
            ) from None

    def _check_tag(self, event: Any, at: Origin) -> None:
        if event.tag is not None and event.tag != "!" and event.tag not in _TAGS:
            raise _Malformed(
                at, "Custom tags (`!…`) are not supported.", "put the value in quotes if text is meant"
            )

    def _origin(self, event: Any) -> Origin:
        return self._mark(event.start_mark)

    def _mark(self, mark: Any) -> Origin:
        if mark is None:
            return Origin(self._source, self._first_line)
        return Origin(self._source, mark.line + self._first_line, mark.column + 1)

    def _at_index(self, text: str, index: int) -> Origin:
        before = text[:index]
        column = index - (before.rfind("\n") + 1) + 1
        return Origin(self._source, before.count("\n") + self._first_line, column)


def _advice(e: yaml.MarkedYAMLError) -> str:
    problem = e.problem or ""
    if "'\\t'" in problem or "tab" in problem:
        return "indent with spaces"
    if "mapping values are not allowed" in problem:
        return "text with `: ` in it must be quoted"
    if "flow" in (e.context or ""):
        return "inside […] and {…}, text with braces such as ${NAME} must be quoted"
    return ""
