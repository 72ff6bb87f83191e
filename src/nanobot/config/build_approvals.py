"""The rules of `toolApprovals` from a document; a matcher or a target that means nothing is reported."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from nanobot.config.approvals import (
    AllOf,
    AnyOf,
    Approvals,
    Contains,
    ContainsAll,
    Equals,
    In,
    Matcher,
    Matches,
    Rule,
    StartsWith,
)
from nanobot.config.builtin import ARGUMENTS, CHAT_ARGUMENTS, PATH_ARGUMENTS, SYSTEM
from nanobot.config.diagnostics import Place
from nanobot.config.nodes import Entries, Items, Node, Scalar, kind_of, plain
from nanobot.config.permissions import GRANTED
from nanobot.config.places import Reference
from nanobot.config.references import Known
from nanobot.config.shapes import nearest, spellings
from nanobot.config.view import View

LONGEST_PATTERN: Final = 1000
_PATHS: Final = frozenset(PATH_ARGUMENTS.values())
_EVERYTHING: Final = "{} fits every text; leave the argument out of `when` if any value will do."
_OPERATORS: Final = {
    spelling: operator
    for operator in (
        "equals",
        "in",
        "startsWith",
        "matches",
        "contains",
        "containsAll",
        "anyOf",
        "allOf",
    )
    for spelling in spellings(operator)
}


def build_approvals(
    agent: View, key: str, known: Known, is_visible: Callable[[Reference], bool]
) -> Approvals | None:
    """`agent`: the mapping that may hold `key`. `is_visible`: whether a rule's target is among its tools."""
    if not agent.has(key):
        return None
    approvals = agent.under(key)
    if not approvals.has("default"):
        message = "Approvals need `default: approve`: what becomes of a call that no rule decides."
        approvals.place.key("default").error("missing-key", approvals.at, message)
    rules = [_rule(rule, known, is_visible) for rule in approvals.mappings("rules")]
    return Approvals(rules=tuple(rule for rule in rules if rule is not None), origin=approvals.at)


def _rule(rule: View, known: Known, is_visible: Callable[[Reference], bool]) -> Rule | None:
    missing = [key for key in ("tool", "allow") if not rule.has(key)]
    for key in missing:
        rule.place.key(key).error("missing-key", rule.at, f"A rule needs `{key}`.")
    when = {
        name: matcher
        for name, entry in rule.entries("when").items()
        if (matcher := _matcher(entry.node, rule.place.key("when").key(name))) is not None
    }
    if missing:
        return None
    name, at, place = rule.text("tool"), rule.origin("tool"), rule.place.key("tool")
    if name == "inherit":
        place.error("bad-rule", at, "A rule names a tool, a server or an agent; `inherit` is none.")
        return None
    target = known.tool(name.removesuffix("/*"), at, place)
    if target is None:
        return None
    if target.alias is not None or not is_visible(target):
        message = f"The rule is about {name!r}, which is not among the tools of this agent."
        hint = "name the tool as it stands in `tools`, without alias" if target.alias else ""
        place.error("bad-rule", at, message, hint)
        return None
    if target.server == SYSTEM and target.tool is not None and target.tool not in GRANTED:
        message = f"The rule is about {name!r}, but {SYSTEM!r} has no such tool."
        place.error("bad-rule", at, message, _suggested(target.tool, GRANTED, "tools"))
        return None
    if (arguments := _arguments(target, known)) is not None:
        _check_arguments(rule, name, arguments)
    if target.server == SYSTEM:
        _check_paths(rule)
    built = Rule(target=target, allow=rule.value("allow"), when=when, origin=rule.at)
    command = when.get("command") if target.server == SYSTEM and target.tool == "bash" else None
    if built.allow and command is not None and not _says_how_it_begins(command):
        message = "This allows every command that has the text anywhere in it, so any command at all."
        hint = "say how the command begins, with `startsWith` or `matches`"
        rule.place.key("when").key("command").warning("bad-matcher", rule.at, message, hint)
    return built


def _says_how_it_begins(matcher: Matcher) -> bool:
    match matcher:
        case AnyOf(matchers):
            return all(map(_says_how_it_begins, matchers))
        case AllOf(matchers):
            return any(map(_says_how_it_begins, matchers))
        case Contains() | ContainsAll():
            return False
        case _:
            return True


def _arguments(target: Reference, known: Known) -> Collection[str] | None:
    """The arguments of what is called; None where only its server knows."""
    if target.server == SYSTEM and target.tool is None:
        return {name for names in ARGUMENTS.values() for name in names}
    if target.server == SYSTEM and target.tool is not None:
        return ARGUMENTS.get(target.tool)
    return CHAT_ARGUMENTS if target.server in known.agents and target.tool is None else None


def _check_arguments(rule: View, tool: str, arguments: Collection[str]) -> None:
    for name, entry in rule.entries("when").items():
        if name not in arguments:
            message = f"{tool!r} has no argument {name[:64]!r}, so the rule would never match."
            place = rule.place.key("when").key(name)
            place.error("bad-rule", entry.key_at, message, _suggested(name, arguments, "arguments"))


def _check_paths(rule: View) -> None:
    for name, entry in rule.entries("when").items():
        if name in _PATHS and "${" in str(plain(entry.node)):
            message = "`${…}` means nothing in a rule, so this path would never match."
            hint = "write `~/` for your home, or a path from the folder of the conversation"
            rule.place.key("when").key(name).error("bad-matcher", entry.node.at, message, hint)


def _suggested(word: str, known: Collection[str], kind: str) -> str:
    near = nearest(word, {name: name for name in known})
    return (f"did you mean {near!r}? " if near else "") + f"{kind}: {', '.join(known)}"


def _matcher(node: Node, place: Place) -> Matcher | None:
    if not isinstance(node, Entries) or len(node.entries) != 1:
        found = f"{len(node.entries)} keys" if isinstance(node, Entries) else kind_of(node)
        message = f"A matcher is a mapping with exactly one operator; this is {found}."
        place.error("bad-matcher", node.at, message, f"operators: {_known()}")
        return None
    [(written, entry)] = node.entries.items()
    operator, operand = _OPERATORS.get(written), entry.node
    place = place.key(written)
    match operator, operand:
        case None, _:
            message = f"There is no operator {written[:64]!r}."
            place.error("bad-matcher", entry.key_at, message, f"operators: {_known()}")
        case "equals", _:
            return Equals(plain(operand))
        case (("contains" | "startsWith" | "matches"), Scalar(value="")):
            place.error("bad-matcher", operand.at, _EVERYTHING.format(f"An empty `{operator}`"))
        case "contains", _:
            return Contains(plain(operand))
        case "in", Items(items=items) if items:
            return In(tuple(plain(operand)))
        case "containsAll", Items(items=items) if items:
            if "" in (values := tuple(plain(operand))):
                message = _EVERYTHING.format("An empty text in `containsAll`")
                place.error("bad-matcher", operand.at, message)
                return None
            return ContainsAll(values)
        case "startsWith", Scalar(value=str(prefix)):
            return StartsWith(prefix)
        case "matches", Scalar(value=str(pattern)):
            return _pattern(pattern, operand, place)
        case (("anyOf" | "allOf"), Items(items=items)) if items:
            matchers = [_matcher(item, place.item(i)) for i, item in enumerate(items)]
            whole = tuple(one for one in matchers if one is not None)
            return AnyOf(whole) if operator == "anyOf" else AllOf(whole)
        case _:
            wanted = {"startsWith": "a text", "matches": "a regular expression"}.get(operator, "a list")
            if wanted == "a list":
                what = "matcher" if operator in ("anyOf", "allOf") else "value"
                wanted = f"a list of at least one {what}"
            found = "an empty one" if isinstance(operand, Items) else kind_of(operand)
            message = f"`{operator}` takes {wanted}, found {found}."
            place.error("bad-matcher", operand.at, message)
    return None


def _pattern(pattern: str, node: Node, place: Place) -> Matches | None:
    import regex  # the only one that gives up after a while, which a pattern with a bad day needs

    if len(pattern) > LONGEST_PATTERN:
        message = f"The regular expression is longer than {LONGEST_PATTERN} characters."
        place.error("bad-matcher", node.at, message)
        return None
    try:
        compiled = regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError) as e:
        place.error("bad-matcher", node.at, f"This is no regular expression: {e}.")
        return None
    if compiled.search("\ue000", pos=1, timeout=1) is not None:  # found in nothing, at the end of anything
        place.error("bad-matcher", node.at, _EVERYTHING.format("This regular expression"))
        return None
    return Matches(pattern)


def _known() -> str:
    return ", ".join(dict.fromkeys(_OPERATORS.values()))
