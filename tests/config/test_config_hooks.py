"""`hooks` in documents: what keys and targets mean, and what is wrong with those that mean nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nanobot.config.load import Selection, examine
from nanobot.config.model import HookTarget
from nanobot.config.places import Reference
from nanobot.config.redact import redact


def examined(home: Path, document: Any) -> Any:
    (home / "nanobot.yaml").write_text(json.dumps(document))
    return examine(Selection(sources=[str(home)], env={}, cwd=home, home=home))


def of_server(home: Path, hooks: Any) -> Any:
    return examined(home, {"mcpServers": {"pay": {"command": "none", "hooks": hooks}}})


def hooks_of(home: Path, hooks: Any) -> Any:
    config = of_server(home, hooks).config
    assert config is not None
    return config.mcp_servers["pay"].hooks


def complaint(home: Path, hooks: Any) -> str:
    found = of_server(home, hooks)
    assert found.config is None
    [one] = found.diagnostics
    return f"{one.code}: {one.message}"


def test_keys_are_taken_apart_and_sorted_by_their_bytes(tmp_path: Path) -> None:
    keys = ["tools/call", "é", "*?direction=response", "tools/call?name=a&name=b%20c&callOnError=false"]
    mappings = hooks_of(tmp_path, {key: ["pay/check"] for key in keys})
    assert [(m.event, m.params) for m in mappings] == [
        ("*", {"direction": "response"}),
        ("tools/call", {}),
        ("tools/call", {"name": "a,b c", "callOnError": "false"}),
        ("é", {}),
    ]


def test_targets_are_told_apart(tmp_path: Path) -> None:
    for name in ("a.ts", "b.py"):
        (tmp_path / name).touch()
    targets = [
        "pay/check",
        "!mutate:pay/a/b",
        "!optional:!mutate:https://example.com/x,y",
        "!mutate:!optional:http://127.0.0.1:9/",
        "./a.ts",
        "./b.py#run",
        "nanobot.system/config",  # always done, so nothing to be said about it
    ]
    [mapping] = hooks_of(tmp_path, {"tools/call": targets})
    assert list(mapping.targets) == [
        HookTarget(text=targets[0], tool=Reference("pay", "check")),
        HookTarget(text=targets[1], tool=Reference("pay", "a/b"), may_mutate=False),
        HookTarget(text=targets[2], url="https://example.com/x,y", may_mutate=False, is_optional=True),
        HookTarget(text=targets[3], url="http://127.0.0.1:9/", may_mutate=False, is_optional=True),
        HookTarget(text=targets[4], path=tmp_path / "a.ts"),
        HookTarget(text=targets[5], path=tmp_path / "b.py", export="run"),
    ]


def test_one_text_is_one_target(tmp_path: Path) -> None:
    [mapping] = hooks_of(tmp_path, {"tools/call": "pay/check"})
    assert len(mapping.targets) == 1


@pytest.mark.parametrize(
    ("key", "target", "finding"),
    [
        ("tools/call", "gone/check", "unknown-server: 'gone/check' refers to 'gone'"),
        ("tools/call", "pay", "bad-hook: This is no hook target."),
        ("tools/call", "pay/", "bad-hook: This is no hook target."),
        ("tools/call", "!mutate:!mutate:pay/x", "bad-hook: A prefix of a hook target is written once."),
        ("tools/call", "./gone.ts", "bad-hook: There is no file './gone.ts'"),
        ("tools/call", "./folder", "bad-hook: './folder' is no script"),
        ("tools/call", "./../x.ts", "bad-hook: './../x.ts' is not in the directory"),
        ("tools/call", "./link.ts", "bad-hook: './link.ts' is not in the directory"),
        ("tools/call", "./b.py", "bad-hook: './b.py' names no function."),
        ("tools/call", "./b.py#a.b", "bad-hook: What follows the `#`"),
        ("tools/call", "http://example.com/", "bad-hook: A web hook has an https:// address"),
        ("tools/call", "http://127.evil.example/", "bad-hook: A web hook has an https:// address"),
        ("tools/call", "ftp://example.com/", "bad-hook: A web hook has an https:// address"),
        ("?name=x", "pay/x", "bad-hook: A hook needs an event"),
        ("tools/call?tool=x", "pay/x", "bad-hook: No event has tool"),
        ("tools/call?direction=in", "pay/x", "bad-hook: `direction` is request or response"),
        ("initialize", "pay/x", "bad-hook: 'pay/x' cannot answer before 'pay' is connected"),
        ("subscriptions/listen", "pay/x", "bad-hook: Hooks do not run for 'subscriptions/listen'"),
    ],
)
def test_what_could_never_run_is_an_error(tmp_path: Path, key: str, target: str, finding: str) -> None:
    home = tmp_path / "home"
    (home / "folder").mkdir(parents=True)
    (home / "b.py").touch()
    (tmp_path / "x.ts").touch()
    (home / "link.ts").symlink_to(tmp_path / "x.ts")
    assert complaint(home, {key: target}).startswith(finding)


def test_agents_and_sessions_have_events_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    good = {"config": "./a.py#f", "request": "./a.py#f", "response": "./a.py#f", "*": "./a.py#f"}
    document: dict[str, Any] = {
        "agents": {"main": {"model": "demo", "hooks": good}},
        "hooks": {"session": "./a.py#f"},
        "publish": {"entrypoint": ["main"]},
    }
    config = examined(tmp_path, document).config
    assert [m.event for m in config.agents["main"].hooks] == ["*", "config", "request", "response"]
    assert [m.event for m in config.hooks] == ["session"]
    document["hooks"] = {"tools/call": "./a.py#f"}
    document["agents"]["main"]["hooks"] = {"config?name=x": "./a.py#f"}
    found = examined(tmp_path, document)
    assert [d.code for d in found.diagnostics] == ["bad-hook", "bad-hook"]


def test_the_files_of_an_agent_in_markdown_are_in_the_same_directory(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "a.ts").touch()
    (tmp_path / "agents" / "main.md").write_text("---\nmodel: demo\nhooks: {config: ./a.ts}\n---\nHi.")
    (tmp_path / "nanobot.yaml").write_text("{}")
    config = examine(Selection(sources=[str(tmp_path)], env={}, cwd=tmp_path, home=tmp_path)).config
    assert config is not None
    [mapping] = config.agents["main"].hooks
    assert mapping.targets[0].path == tmp_path / "a.ts"


def test_secrets_of_hooks_are_not_shown() -> None:
    shown = redact(
        {
            "hookSettings": {"secret": "s3cret", "env": {"TEAM": "s3cret", "KEY": "${KEY}"}},
            "mcpServers": {"pay": {"hooks": {"*": ["https://u:s3cret@example.com/?token=s3cret"]}}},
        }
    )
    assert "s3cret" not in json.dumps(shown)
    assert shown["hookSettings"]["env"]["KEY"] == "${KEY}"


def servers_with(home: Path, **hooks: Any) -> list[str]:
    """The complaints about servers with these `hooks`."""
    servers = {name: {"command": "none", "hooks": of} for name, of in hooks.items()}
    return [one.message for one in examined(home, {"mcpServers": servers}).diagnostics]


def test_servers_that_would_wait_for_one_another_are_an_error(tmp_path: Path) -> None:
    found = servers_with(
        tmp_path, a={"initialize": "b/x"}, b={"server/discover": "c/x"}, c={"tools/call": "a/x"}
    )
    assert found == [
        "'b/x' cannot answer before 'a' is connected.",
        "'c/x' cannot answer before 'b' is connected.",
    ]


def test_hooks_of_every_message_wait_for_nobody(tmp_path: Path) -> None:
    """A tool that could only answer after a handshake is left out of what the handshake passes."""
    assert servers_with(tmp_path, a={"*": "b/x"}, b={"*": "a/x"}) == []
    assert servers_with(tmp_path, a={"initialize": "b/x"}, b={"*?method=initialize": "a/x"}) == []
    assert servers_with(tmp_path, a={"initialize": "b/x"}, b={"resources/read": "a/x"}) == []


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("tool/call", "did you mean 'tools/call'?"),
        ("Tools/Call?direction=request", "did you mean 'tools/call'?"),
        ("sampling/createMesage", "did you mean 'sampling/createMessage'?"),
        ("acme/deploy", "an extension may have it"),
    ],
)
def test_a_method_that_mcp_does_not_have_is_warned_of(tmp_path: Path, key: str, hint: str) -> None:
    found = of_server(tmp_path, {key: ["pay/check"]})
    [one] = found.diagnostics
    assert found.config is not None
    assert (one.severity, one.code, one.hint) == ("warning", "unknown-method", hint)


def test_what_hooks_see_is_not_warned_of(tmp_path: Path) -> None:
    keys = ["*", "tools/call", "ping", "initialize", "tasks/get", "notifications/message?direction=request"]
    assert of_server(tmp_path, {key: ["!optional:https://example.com/"] for key in keys}).diagnostics == ()
