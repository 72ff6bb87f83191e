"""What rules say about calls: every matcher, paths and command lines that try to get past them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nanobot.agent.approval.decision import Called, decide
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
from nanobot.config.places import Reference

SYSTEM = "nanobot.system"


def rule(tool: str, allow: bool, server: str = SYSTEM, **when: Matcher) -> Rule:
    return Rule(target=Reference(server, tool or None), allow=allow, when=when)


def verdict(
    rules: list[Rule], tool: str, server: str = SYSTEM, folder: Path | None = None, **arguments: Any
) -> str:
    called = Called(server=server, tool=tool, arguments=arguments, folder=folder)
    return decide([Approvals(rules=tuple(rules))], called).verdict


MATCHERS: list[tuple[Matcher, list[Any], list[Any]]] = [
    (Equals("a"), ["a"], ["A", "ab", None, ["a"]]),
    (Equals(1), [1, 1.0], [True, "1", 2]),
    (Equals(True), [True], [1, "true"]),
    (Equals(None), [None], [0, False, ""]),
    (Equals({"a": [1, {"b": None}]}), [{"a": [1.0, {"b": None}]}], [{"a": [1]}, {"a": [1, {}], "c": 1}]),
    (In(("a", 2, None)), ["a", 2.0, None], ["b", False, 3]),
    (In(()), [], ["a", None]),
    (StartsWith("ab"), ["ab", "abc"], ["a", "xab", 1, ["ab"]]),
    (StartsWith(""), ["", "x"], [None, 0]),
    (Matches("b+c"), ["abbcd"], ["ac", 5, ["bc"]]),
    (Matches("^b$"), ["b"], ["ab", "b\nc"]),
    (Contains("b"), ["abc", ["a", "b"]], ["ac", ["abc"], {"b": 1}, 5]),
    (Contains(1), [[1.0, 2]], ["1", [True]]),
    (ContainsAll(("a", "b")), ["ab", ["b", "x", "a"]], ["a", ["a"], 5]),
    (ContainsAll(()), ["", [], "x"], [None, 5, {}]),
    (AnyOf((Equals("a"), StartsWith("b"))), ["a", "bx"], ["c", 1]),
    (AllOf((Contains("a"), Contains("b"))), ["ab"], ["a", "b"]),
    (AllOf((AnyOf((Equals("x"), Equals("y"))), Matches("y"))), ["y"], ["x"]),
]


@pytest.mark.parametrize(("matcher", "yes", "no"), MATCHERS)
def test_every_matcher(matcher: Matcher, yes: list[Any], no: list[Any]) -> None:
    for allow, expected in ((True, "run"), (False, "refuse")):
        rules = [rule("t", allow, server="s", x=matcher)]
        assert [verdict(rules, "t", "s", x=value) for value in yes] == [expected] * len(yes)
        assert [verdict(rules, "t", "s", x=value) for value in no] == ["ask"] * len(no)


def test_a_rule_needs_every_argument_it_names_and_null_is_one() -> None:
    rules = [rule("close", True, server="tracker", labels=Contains("bot"), owner=Equals(None))]
    assert verdict(rules, "close", "tracker", labels=["bot"], owner=None) == "run"
    assert verdict(rules, "close", "tracker", labels=["bot"]) == "ask"
    assert verdict(rules, "open", "tracker", labels=["bot"], owner=None) == "ask"
    assert verdict([rule("", True, server="tracker")], "open", "tracker") == "run"
    assert verdict([rule("", True, server="tracker")], "open", "other") == "ask"


def test_the_first_rule_that_matches_decides() -> None:
    push = rule("bash", False, command=Contains("push --force"))
    git = rule("bash", True, command=StartsWith("git "))
    assert verdict([push, git], "bash", command="git push --force") == "refuse"
    assert verdict([git, push], "bash", command="git push --force") == "run"
    assert verdict([push, git], "bash", command="git status -s") == "run"
    assert verdict([push, git], "bash", command="make") == "ask"


def test_levels_a_refusal_stands_and_the_innermost_opinion_counts() -> None:
    call = Called(server="s", tool="t", arguments={})
    yes = Approvals(rules=(rule("t", True, server="s"),))
    no = Approvals(rules=(rule("t", False, server="s"),))
    silent = Approvals()
    assert decide([], call).verdict == "run"
    assert decide([None], call).verdict == "run"
    assert decide([silent], call).verdict == "ask"
    assert decide([no, yes], call).verdict == "refuse"
    assert decide([yes, no], call).verdict == "refuse"
    assert decide([yes, silent], call).verdict == "run"
    assert decide([silent, None, yes], call).verdict == "run"


ALLOWED = [
    rule("bash", True, command=AnyOf((StartsWith("git status"), Matches("^ls( |$)"), Contains("pytest")))),
    rule("read", True, file_path=StartsWith("/srv/app/")),
    rule("write", True, file_path=StartsWith("build/")),
]


@pytest.mark.parametrize(
    "command",
    [
        "git status; rm -r x",
        "git status\nrm -r x",
        "git status && rm -r x",
        "git status & rm -r x",
        "git status | sh",
        "git status `rm x`",
        "git status $(rm x)",
        "git status > /etc/passwd",
        "git status < /etc/passwd",
        "git status <(rm x)",
        "git status ';' rm",
        "ls; rm x",
        "ls || rm x",
        "ls\nrm x",
        "ls $(rm x)",
        "rm x; pytest",
        "rm x #\npytest",
        " git status",
        "GIT status",
    ],
)
def test_a_command_line_that_does_more_is_not_allowed_by_its_beginning(command: str) -> None:
    assert verdict(ALLOWED, "bash", command=command) == "ask"


def test_a_sign_that_stands_in_the_rule_is_meant() -> None:
    piped = [rule("bash", True, command=StartsWith("git log | head"))]
    assert verdict(piped, "bash", command="git log | head -3") == "run"
    assert verdict(piped, "bash", command="git log | head; rm x") == "ask"
    either = [rule("bash", True, command=Matches("^(git|ls) "))]
    assert verdict(either, "bash", command="git log") == "run"
    assert verdict(either, "bash", command="git log | sh") == "ask"
    escaped = [rule("bash", True, command=Matches(r"^ls \| head$"))]
    assert verdict(escaped, "bash", command="ls | head") == "run"
    ruled_out = [rule("bash", True, command=Matches(r"^git [^\;\&\|]*"))]
    assert verdict(ruled_out, "bash", command="git status") == "run"
    assert verdict(ruled_out, "bash", command="git status; rm -rf /") == "ask"
    exact = [rule("bash", True, command=In(("make && make test",)))]
    assert verdict(exact, "bash", command="make && make test") == "run"


@pytest.mark.parametrize(
    "command",
    [
        "git push --force",
        "git  push   --force",
        "git push '--force'",
        'git "push" --force',
        "git pu\\sh --force",
        "git push \\\n --force",
        "cd x && git push --force",
        "true;git push --force",
        "true\ngit push --force",
        "A=1 git push --force",
        "/usr/bin/git push --force",
        "sudo git push --force",
        "bash -c 'git push --force'",
        "sh -c \"sh -c 'git push --force'\"",
        "echo $(git push --force)",
        "git${IFS}push${IFS}--force",
        "(git push --force)",
        "env -i git push --force",
        "sudo -u bob git push --force",
        "timeout 5 git push --force",
        "env A=1 git push --force",
        "nice -n 5 git push --force",
        "flock /tmp/x git push --force",
        "ls | xargs -n 1 git push --force",
        "true " + "x" * 20_001 + "; git push --force",
        "true " + "-a " * 6000 + "; git push --force",
    ],
)
def test_a_refused_command_is_refused_however_it_is_dressed(command: str) -> None:
    for matcher in (Contains("push --force"), StartsWith("git push --force")):
        rules = [rule("bash", False, command=matcher), rule("bash", True)]
        assert verdict(rules, "bash", command=command) == "refuse", matcher


def test_paths_are_where_they_lead(tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    os.symlink("/etc", tmp_path / "build" / "link")
    assert verdict(ALLOWED, "read", file_path="/srv/app/x") == "run"
    for path in ("/srv/app/../../etc/passwd", "/srv/app/", "/srv/application", "srv/app/x", "/srv/app/.."):
        assert verdict(ALLOWED, "read", folder=tmp_path, file_path=path) == (
            "run" if path == "/srv/app/" else "ask"
        )
    assert verdict(ALLOWED, "write", folder=tmp_path, file_path="build/x") == "run"
    assert verdict(ALLOWED, "write", folder=tmp_path, file_path=str(tmp_path / "build/x")) == "run"
    assert verdict(ALLOWED, "write", folder=tmp_path, file_path="./build/../build/x") == "run"
    for path in ("build/../x", "build/link/passwd", "/build/x", "build"):
        assert verdict(ALLOWED, "write", folder=tmp_path, file_path=path) == "ask"


def test_a_refused_path_is_refused_by_every_way_there(tmp_path: Path) -> None:
    os.symlink("/etc", tmp_path / "innocent")
    rules = [rule("read", False, file_path=StartsWith("/etc/")), rule("read", True)]
    for path in ("/etc/passwd", "/etc/../etc/passwd", "innocent/passwd", "//etc/passwd"):
        assert verdict(rules, "read", folder=tmp_path, file_path=path) == "refuse"
    assert verdict(rules, "read", folder=tmp_path, file_path="mine") == "run"


def test_an_expression_that_never_ends_allows_nothing_and_refuses() -> None:
    rules = [rule("t", True, server="s", x=Matches("^(a+)+$"))]
    assert verdict(rules, "t", "s", x="a" * 5000 + "b") == "ask"
    text = "a" * 3800 + "! drop table x"
    for server, tool, name in (("s", "t", "x"), (SYSTEM, "bash", "command"), (SYSTEM, "read", "file_path")):
        endless = Matches(r"^(\w+\s?)+;|drop table")
        rules = [rule(tool, False, server, **{name: endless}), rule(tool, True, server)]
        assert verdict(rules, tool, server, **{name: text}) == "refuse"
