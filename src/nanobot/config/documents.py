"""Reading one file: what it may weigh, how it is encoded, which syntax it is in."""

from __future__ import annotations

from pathlib import Path

from nanobot.config.diagnostics import Diagnostics
from nanobot.config.json_text import parse_json
from nanobot.config.nodes import Entries, Node, Scalar
from nanobot.config.places import Origin

MAX_FILE_BYTES = 1024 * 1024


def read_text(path: Path, source: str, found: Diagnostics) -> str | None:
    """The text of a regular file of at most 1 MiB of UTF-8, without BOM; None after reporting why not."""
    top = Origin(source, 1)
    try:
        if not path.is_file():  # a FIFO or device would block or never end
            reason = "is not a regular file" if path.exists() else "does not exist"
            found.add("error", "source-error", top, f"The file {source!r} {reason}.")
            return None
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as e:
        found.add(
            "error",
            "source-error",
            top,
            f"The file {source!r} cannot be read: {e.strerror or 'input/output error'}.",
        )
        return None
    if len(data) > MAX_FILE_BYTES:
        found.add(
            "error", "source-error", top, f"The file {source!r} is larger than {MAX_FILE_BYTES // 1024} KiB."
        )
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        column = e.start - data.rfind(b"\n", 0, e.start)
        found.add("error", "syntax", Origin(source, line, column), "The file is not valid UTF-8 here.")
        return None


def read_document(path: Path, source: str, found: Diagnostics) -> Entries | None:
    """The mapping at the root of a YAML or JSON file; an empty file is an empty mapping."""
    text = read_text(path, source, found)
    if text is None:
        return None
    before = len(found)
    if path.suffix == ".json":
        node: Node | None = parse_json(text, source, found)
    else:
        from nanobot.config.yaml_text import parse_yaml  # 50 ms that other documents need not pay

        node = parse_yaml(text, source, found)
    if isinstance(node, Entries):
        return node
    if node is None or (isinstance(node, Scalar) and node.value is None):
        is_broken = len(found) > before
        return None if is_broken else Entries({}, Origin(source, 1))
    found.add("error", "wrong-type", node.at, "A configuration document must be a mapping of keys to values.")
    return None
