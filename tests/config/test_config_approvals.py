"""`toolApprovals` in documents: rules that mean something, and what is said of those that do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.config.conftest import Folder

from nanobot.builtin.agents import SCHEMA
from nanobot.builtin.system import system_server
from nanobot.config.approvals import AnyOf, ContainsAll, Equals, In, StartsWith
from nanobot.config.builtin import ARGUMENTS, CHAT_ARGUMENTS
from nanobot.config.places import Reference


def written(folder: Folder, rules: Any, **more: Any) -> None:
    agent = {
        "mcpServers": ["tracker"],
        "tools": ["mail/send:post"],
        "permissions": {"write": "deny"},
        "agents": ["helper"],
        "toolApprovals": {"default": "approve", "rules": rules, **more},
    }
    servers = {"tracker": {"command": "none"}, "mail": {"command": "none"}, "other": {"command": "none"}}
    document = {
        "agents": {"main": agent, "helper": {}},
        "mcpServers": servers,
        "publish": {"entrypoint": ["main"]},
    }
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


EMPTY: list[tuple[Any, str]] = [
    ({"allOf": []}, "at least one matcher"),
    ({"containsAll": []}, "at least one value, found an empty one"),
    ({"in": []}, "at least one value"),
    ({"startsWith": ""}, "fits every text"),
    ({"contains": ""}, "fits every text"),
    ({"matches": ""}, "fits every text"),
    ({"matches": "(git)?"}, "fits every text"),
    ({"matches": "(?!git)"}, "fits every text"),
    ({"matches": ".*"}, "fits every text"),
    ({"containsAll": ["a", ""]}, "fits every text"),
    ({"anyOf": [{"equals": "a"}, {"startsWith": ""}]}, "fits every text"),
]


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
        *(
            ({"tool": "bash", "allow": allow, "when": {"command": matcher}}, "bad-matcher", words)
            for allow in (True, False)
            for matcher, words in EMPTY
        ),
        *(
            ({"tool": tool, "allow": allow, "when": {name: {"equals": "x"}}}, "bad-rule", words)
            for allow in (True, False)
            for tool, name, words in (
                ("bash", "cmd", "'bash' has no argument 'cmd'"),
                ("Bash", "comand", "did you mean 'command'? arguments: command, timeout"),
                ("nanobot.system/bash", "Command", "did you mean 'command'?"),
                ("read", "path", "arguments: file_path, offset"),
                ("nanobot.system", "files", "has no argument 'files'"),
                ("helper", "promt", "did you mean 'prompt'? arguments: prompt, attachments"),
            )
        ),
        *(
            ({"tool": tool, "allow": False, "when": {name: matcher}}, "bad-matcher", "write `~/`")
            for tool, name in (("read", "file_path"), ("grep", "path"), ("bash", "workdir"))
            for matcher in ({"startsWith": "${HOME}/x"}, {"anyOf": [{"in": ["a", "${X}"]}]})
        ),
        ({"tool": "nanobot.system/Bash", "allow": False}, "bad-rule", "did you mean 'bash'?"),
        ({"tool": "nanobot.system/hammer", "allow": False}, "bad-rule", "has no such tool"),
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


@pytest.mark.anyio
async def test_the_arguments_that_rules_may_name_are_those_of_the_tools(tmp_path: Path) -> None:
    listed = await system_server(home=tmp_path, sandbox=None, env={}).listing("tools")
    schemas = {tool.key: tool.definition.object()["inputSchema"] for tool in listed}
    assert {name: list(schema["properties"]) for name, schema in schemas.items()} == {
        name: list(arguments) for name, arguments in ARGUMENTS.items()
    }
    assert list(SCHEMA["properties"]) == list(CHAT_ARGUMENTS)


def test_every_argument_of_a_built_in_tool_may_be_named(folder: Folder) -> None:
    rules: list[Any] = [
        {"tool": tool, "allow": False, "when": {name: {"equals": "x"} for name in names}}
        for tool, names in ARGUMENTS.items()
        if tool != "write"
    ]
    rules.append({"tool": "helper", "allow": False, "when": {"prompt": {"contains": "x"}}})
    rules.append({"tool": "webFetch", "allow": False, "when": {"url": {"startsWith": "http:"}}})
    rules.append({"tool": "bash", "allow": False, "when": {"command": {"contains": "${HOME}"}}})
    rules.append({"tool": "tracker/close", "allow": False, "when": {"anything": {"equals": 1}}})
    written(folder, rules)
    assert len(rules_of(folder)) == len(rules)


@pytest.mark.parametrize(
    ("matcher", "is_loose"),
    [
        ({"contains": "pytest"}, True),
        ({"containsAll": ["make", "--dry-run"]}, True),
        ({"anyOf": [{"startsWith": "make"}, {"contains": "pytest"}]}, True),
        ({"allOf": [{"contains": "a"}, {"contains": "b"}]}, True),
        ({"allOf": [{"startsWith": "make "}, {"contains": "--dry-run"}]}, False),
        ({"anyOf": [{"startsWith": "make"}, {"in": ["pytest"]}]}, False),
    ],
)
def test_an_allowing_rule_that_any_command_can_fit_is_warned_of(
    matcher: Any, is_loose: bool, folder: Folder
) -> None:
    written(folder, [{"tool": "bash", "allow": True, "when": {"command": matcher}}])
    found = folder.findings("./nanobot.yaml")
    assert ["any command at all" in one and "warning" in one for one in found] == [True] * is_loose
    written(folder, [{"tool": "bash", "allow": False, "when": {"command": matcher}}])
    assert folder.findings("./nanobot.yaml") == []
