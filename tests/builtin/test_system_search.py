"""`glob` and `grep`, with ripgrep (confined where possible) and without it: the answers are the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nanobot.builtin.server import ToolFailed
from nanobot.builtin.system.patterns import path_pattern
from nanobot.builtin.system.programs import Programs

from .system_world import World

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["ripgrep", "python"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    if request.param == "python":  # a machine without ripgrep
        monkeypatch.setattr(Programs, "find", lambda *_: None)
    world = World(tmp_path)
    files = {
        ".gitignore": "*.log\nbuild/\n!keep.log\n/only-here\n",
        ".hidden/h.py": "needle hidden",
        ".git/config": "needle git",
        "a.py": "one\nneedle 1\ntwo\nthree\nfour\nfive\nneedle 2\n",
        "b.txt": "Needle\r\nplain\r\n",
        "build/out.py": "needle built",
        "binary.py": b"needle\0",
        "debug.log": "needle log",
        "keep.log": "needle kept",
        "only-here": "needle",
        "sub/.gitignore": "secret.*\n",
        "sub/a$(touch pwned).txt": "needle shell",
        "sub/only-here": "needle",
        "sub/secret.py": "needle ignored",
        "sub/deep/c.py": "x = [1]\n  needle = 3\n",
    }
    for n, (path, content) in enumerate(files.items()):
        os.utime(world.put(path, content), (1_000_000 + n, 1_000_000 + n))
    (world.base / "outside.py").write_text("needle outside")
    (world.folder / "link.py").symlink_to(world.base / "outside.py")
    (world.folder / "up").symlink_to(world.base)
    return world


@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("*.py", None, ["sub/deep/c.py", "binary.py", "a.py"]),
        ("*.py", "sub", ["sub/deep/c.py"]),
        ("sub/*.txt", None, ["sub/a$(touch pwned).txt"]),
        ("deep/*", "sub", ["sub/deep/c.py"]),
        ("/a.py", None, ["a.py"]),
        ("**/*.{py,txt}", None, ["sub/deep/c.py", "sub/a$(touch pwned).txt", "binary.py", "b.txt", "a.py"]),
        ("[ab].*", None, ["b.txt", "a.py"]),
        ("[!a].*", None, ["sub/deep/c.py", "b.txt"]),
        ("?.py", None, ["sub/deep/c.py", "a.py"]),
        ("sub/**", None, ["sub/deep/c.py", "sub/only-here", "sub/a$(touch pwned).txt"]),
        ("*.log", None, ["keep.log"]),
        ("only-here", None, ["sub/only-here"]),
        (".hidden/*", None, [".hidden/h.py"]),
        ("h.py", ".hidden", [".hidden/h.py"]),
        (".git/*", None, []),
        ("*.rs", None, []),
        ("*", "nowhere", []),
        ("A.PY", None, []),
    ],
)
async def test_glob_finds_by_pattern_and_shows_the_newest_first(
    world: World, pattern: str, path: str | None, found: list[str]
) -> None:
    arguments = {"pattern": pattern} | ({} if path is None else {"path": path})
    expected = "\n".join(found) or "No files found matching pattern"
    assert await world.use("glob", **arguments) == expected
    assert not (world.folder / "pwned").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ["a.py", "keep.log", "sub/a$(touch pwned).txt", "sub/deep/c.py", "sub/only-here"]),
        ({"-i": True, "type": "txt"}, ["b.txt", "sub/a$(touch pwned).txt"]),
        ({"type": "py"}, ["a.py", "sub/deep/c.py"]),
        ({"glob": "*.log"}, ["debug.log", "keep.log"]),
        ({"glob": "!*.py", "path": "sub"}, ["sub/a$(touch pwned).txt", "sub/only-here"]),
        ({"path": "sub/deep"}, ["sub/deep/c.py"]),
        ({"path": "a.py"}, ["a.py"]),
        ({"path": ".hidden"}, [".hidden/h.py"]),
        ({"glob": ".hidden/**"}, [".hidden/h.py"]),
        ({"path": "sub", "head_limit": 1, "offset": 1}, ["sub/deep/c.py"]),
        ({"offset": 9}, ["No matches found"]),
        ({"pattern": "nowhere to be found"}, ["No matches found"]),
        (
            {"output_mode": "count"},
            ["a.py:2", "keep.log:1", "sub/a$(touch pwned).txt:1", "sub/deep/c.py:1", "sub/only-here:1"],
        ),
        ({"output_mode": "content", "path": "a.py"}, ["a.py:2:needle 1", "a.py:7:needle 2"]),
        ({"output_mode": "content", "path": "a.py", "-n": False}, ["a.py:needle 1", "a.py:needle 2"]),
        (
            {"output_mode": "content", "path": "a.py", "-A": 1},
            ["a.py:2:needle 1", "a.py-3-two", "--", "a.py:7:needle 2"],
        ),
        (
            {"output_mode": "content", "path": "a.py", "-B": 1},
            ["a.py-1-one", "a.py:2:needle 1", "--", "a.py-6-five", "a.py:7:needle 2"],
        ),
        (
            {"output_mode": "content", "path": "a.py", "-C": 2, "-A": 0, "-n": False},
            [
                "a.py-one",
                "a.py:needle 1",
                "a.py-two",
                "a.py-three",
                "a.py-four",
                "a.py-five",
                "a.py:needle 2",
            ],
        ),
        ({"output_mode": "content", "path": "b.txt", "pattern": "Needle$"}, ["b.txt:1:Needle"]),
        ({"output_mode": "content", "pattern": "1.*two", "path": "a.py"}, ["No matches found"]),
        (
            {"output_mode": "content", "pattern": "1.*two", "path": "a.py", "multiline": True},
            ["a.py:2:needle 1", "a.py:3:two"],
        ),
        ({"pattern": "-i"}, ["No matches found"]),
        ({"pattern": "--files"}, ["No matches found"]),
        ({"pattern": r"\[1\]"}, ["sub/deep/c.py"]),
    ],
)
async def test_grep_finds_by_content(world: World, arguments: dict[str, Any], expected: list[str]) -> None:
    assert (await world.use("grep", **({"pattern": "needle"} | arguments))).splitlines() == expected


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"pattern": "("}, "regex parse error"),
        ({"type": "no-such-type"}, "unrecognized file type: no-such-type"),
        ({"path": "nowhere"}, "'nowhere' does not exist"),
        ({"path": "../"}, "outside the working folder"),
        ({"path": "up"}, "outside the working folder"),
        ({"-C": -1}, "-C must be >= 0"),
        ({"output_mode": "all"}, "output_mode"),
    ],
)
async def test_a_search_that_means_nothing_says_why(
    world: World, arguments: dict[str, Any], complaint: str
) -> None:
    assert complaint in await world.fail("grep", **({"pattern": "needle"} | arguments))


async def test_many_results_are_cut_with_a_note(world: World) -> None:
    world.put("many.md", "hit\n" * 2500)
    lines = (await world.use("grep", pattern="hit", output_mode="content")).splitlines()
    assert len(lines) == 2001
    assert lines[-1].startswith("[2,000 of 2,500 results shown")
    assert (
        len((await world.use("grep", pattern="hit", output_mode="content", head_limit=2400)).splitlines())
        == 2400
    )


async def test_a_very_long_line_is_cut(world: World) -> None:
    world.put("long.md", "hit" + "x" * 5000)
    found = await world.use("grep", pattern="hit", output_mode="content")
    assert found == "long.md:1:hit" + "x" * 1997 + "... (line truncated to 2000 chars)"


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb", "x/a/b"]),
        ("**/b", ["b", "a/b", "a/c/b"], ["ab"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "b/a/c"]),
        ("**", ["a", "a/b"], []),
        ("a.b", ["a.b", "x/a.b"], ["aXb"]),
        ("a\\*", ["a*"], ["ab"]),
        ("{a,b/c}.txt", ["a.txt", "b/c.txt"], ["x/a.txt"]),
        ("[]a]", ["]", "a"], ["b"]),
        ("{a", ["{a"], ["a"]),
        ("{a,{b,c}}x", ["ax", "bx", "cx"], ["x"]),
        ("x{,.y}", ["x", "x.y"], ["y"]),
        ("a,b", ["a,b"], ["a"]),
    ],
)
def test_path_patterns_are_read_as_git_reads_them(
    pattern: str, matching: list[str], other: list[str]
) -> None:
    compiled = path_pattern(pattern)
    assert [path for path in matching if not compiled.fullmatch(path)] == []
    assert [path for path in other if compiled.fullmatch(path)] == []


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ("[z-a]", "not a path pattern"),
        ("{a,b}" * 10, "more than 100 patterns"),
        ("x" * 1001, "1000 characters"),
    ],
)
def test_a_path_pattern_that_is_none_is_refused(pattern: str, complaint: str) -> None:
    with pytest.raises(ToolFailed, match=complaint):
        path_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "path"), [("**/a" * 60 + "/b", "/".join("a" * 120)), ("*a" * 60 + "*b", "a" * 250)]
)
def test_no_path_pattern_can_be_made_to_take_forever(pattern: str, path: str) -> None:
    assert path_pattern(pattern).fullmatch(path) is None  # tried one after the other: 10^60 ways


@pytest.mark.parametrize("tool", ["glob", "grep"])
async def test_a_pipe_is_refused_and_not_waited_for(world: World, tool: str) -> None:
    os.mkfifo(world.folder / "pipe")
    assert "not a regular file" in await world.fail(tool, pattern="x", path="pipe")
