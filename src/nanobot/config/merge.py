"""How two documents become one: the overlay wins, lists grow, null deletes. Nothing is modified."""

from __future__ import annotations

from nanobot.config.nodes import Entries, Entry, Items, Node, Scalar, is_null


def merge(base: Node, overlay: Node) -> Node:
    """`overlay` laid over `base`. Both are normalised; neither changes.

    Mappings merge key by key, lists concatenate, everything else is replaced. A null in a mapping of
    `overlay` removes the key. `{$replace: …}` (`replaces`) takes the place of whatever was there.
    """
    match base, overlay:
        case Entries(), Entries():
            return merge_documents(base, overlay)
        case Items(), Items(replaces=False):
            return _join(base, overlay)
        case _:
            return overlay


def merge_documents(base: Entries, overlay: Entries) -> Entries:
    """`merge` of two mappings, which is a mapping."""
    if overlay.replaces:
        return overlay
    merged = dict(base.entries)
    for key, entry in overlay.entries.items():
        below = merged.get(key)
        if is_null(entry.node):
            merged.pop(key, None)
        elif below is None:
            merged[key] = entry
        elif _is_kept_null(entry.node) and not _is_kept_null(below.node):
            del merged[key]
        else:
            merged[key] = Entry(entry.key_at, merge(below.node, entry.node))
    return Entries(merged, base.at, base.replaces)


def _is_kept_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.kept


def _join(base: Items, overlay: Items) -> Items:
    joined = overlay.items + base.items if overlay.leads else base.items + overlay.items
    items = distinct(joined) if overlay.unique else joined
    return Items(items, base.at, overlay.unique, base.replaces, overlay.leads)


def distinct(items: tuple[Node, ...]) -> tuple[Node, ...]:
    """`items` without later scalars that repeat an earlier one."""
    first: dict[object, Node] = {}
    for item in items:
        first.setdefault(item.value if isinstance(item, Scalar) else id(item), item)
    return tuple(first.values())
