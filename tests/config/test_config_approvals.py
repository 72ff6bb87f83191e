"""`toolApprovals` in documents: rules that mean something, and what is said of those that do not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.config.conftest import Folder

from nanobot.config.approvals import AnyOf, ContainsAll, Equals, In, StartsWith
from nanobot.config.places import Reference


def written(folder: Folder, rules: Any, **more: Any) -> None:
    agent = {
        "mcpServers": ["tracker"],
        "tools": ["mail/send:post"],
        "permissions": {"write": "deny"},
        "toolApprovals": {"default": "approve", "rules": rules, **more},
    }
    servers = {"tracker": {"command": "none"}, "mail": {"command": "none"}, "other": {"command": "none"}}
    document = {"agents": {"main": agent}, "mcpServers": servers, "publish": {"entrypoint": ["main"]}}
    folder.write("nanobot.yaml", json.dumps(document))


def rules_of(folder: Folder) -> Any:
    approvals = folder.load("./nanobot.yaml").agents["main"].tool_approvals
    assert approvals is not None
    return approvals.rules


def test_rules_are_read_in_both_spellings(folder: Folder) -> None:
    labels = {"contains_all": ["bot"]}
    commands = {"anyOf": [{"equals": "make"}, {"starts_with": "git "}]}
    written(
        folder,
        [
            {
                "tool": "tracker/close",
                "allow": True,
                "when": {"labels": labels, "priority": {"in": [1, None]}},
            },
            {"tool": "Bash", "allow": False, "when": {"command": commands}},
            {"tool": "tracker/*", "allow": True},
            {"tool": "mail/send", "allow": True, "when": {}},
        ],
    )
    rules = rules_of(folder)
    assert [(rule.target, rule.allow) for rule in rules] == [
        (Reference("tracker", "close"), True),
        (Reference("nanobot.system", "bash"), False),
        (Reference("tracker"), True),
        (Reference("mail", "send"), True),
    ]
    assert rules[0].when == {"labels": ContainsAll(("bot",)), "priority": In((1, None))}
    assert rules[1].when == {"command": AnyOf((Equals("make"), StartsWith("git ")))}


def test_rules_of_a_later_document_come_first(folder: Folder) -> None:
    written(folder, [{"tool": "bash", "allow": True}])
    agent = {"toolApprovals": {"rules": [{"tool": "bash", "allow": False}]}}
    folder.write("more.yaml", json.dumps({"agents": {"main": agent}}))
    config = folder.load("./nanobot.yaml", "./more.yaml")
    approvals = config.agents["main"].tool_approvals
    assert approvals is not None
    assert [rule.allow for rule in approvals.rules] == [False, True]


@pytest.mark.parametrize(
    ("rule", "code", "words"),
    [
        ({"tool": "bash"}, "missing-key", "allow"),
        ({"allow": True}, "missing-key", "tool"),
        ({"tool": "nowhere/x", "allow": True}, "unknown-server", "nowhere"),
        ({"tool": "other/x", "allow": True}, "bad-rule", "not among the tools"),
        ({"tool": "mail/read", "allow": True}, "bad-rule", "not among the tools"),
        ({"tool": "mail/send:post", "allow": True}, "bad-rule", "without alias"),
        ({"tool": "Write", "allow": True}, "bad-rule", "not among the tools"),
        ({"tool": "inherit", "allow": True}, "bad-rule", "inherit"),
        ({"tool": "bash", "allow": True, "when": {"command": {}}}, "bad-matcher", "0 keys"),
        ({"tool": "bash", "allow": True, "when": {"command": "ls"}}, "bad-matcher", "text"),
        (
            {"tool": "bash", "allow": True, "when": {"command": {"equals": 1, "in": [1]}}},
            "bad-matcher",
            "2 keys",
        ),
        ({"tool": "bash", "allow": True, "when": {"command": {"like": "x"}}}, "bad-matcher", "like"),
        ({"tool": "bash", "allow": True, "when": {"command": {"matches": "("}}}, "bad-matcher", "regular"),
        (
            {"tool": "bash", "allow": True, "when": {"command": {"matches": "a" * 1001}}},
            "bad-matcher",
            "1000",
        ),
        ({"tool": "bash", "allow": True, "when": {"command": {"startsWith": 1}}}, "bad-matcher", "a text"),
        ({"tool": "bash", "allow": True, "when": {"command": {"in": "x"}}}, "bad-matcher", "a list"),
        ({"tool": "bash", "allow": True, "when": {"command": {"anyOf": []}}}, "bad-matcher", "at least one"),
        ({"tool": "bash", "allow": True, "unless": {}}, "unknown-key", "unless"),
    ],
)
def test_what_means_nothing_is_named_with_its_place(
    rule: dict[str, Any], code: str, words: str, folder: Folder
) -> None:
    written(folder, [rule])
    [one] = folder.diagnostics("./nanobot.yaml")
    assert one.code == code
    assert words in str(one)
    assert "nanobot.yaml:1:" in str(one)


def test_the_word_for_what_no_rule_decides_is_required_and_the_only_one(folder: Folder) -> None:
    written(folder, [], default="run")
    assert folder.codes("./nanobot.yaml") == ["bad-value", "missing-key"]
    folder.write("a.yaml", "agents: {a: {toolApprovals: {rules: []}}}\npublish: {entrypoint: [a]}")
    assert folder.codes("./a.yaml") == ["missing-key"]
