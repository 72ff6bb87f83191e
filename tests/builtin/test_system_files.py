"""`read`, `write` and `edit`, and where they may not go."""

from __future__ import annotations

import base64
import os
import shutil
import stat
import threading
from pathlib import Path

import anyio
import pytest

from .system_world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, sandbox=None)


# --- read


async def test_text_is_read_as_numbered_lines(world: World) -> None:
    world.put("a.txt", "one\r\ntwo\nthree")
    assert await world.use("read", file_path="a.txt") == "     1\tone\n     2\ttwo\n     3\tthree\n"
    assert await world.use("read", file_path="a.txt", offset=1, limit=1) == "     2\ttwo\n"
    assert await world.use("read", file_path=str(world.folder / "a.txt"), offset=2) == "     3\tthree\n"


async def test_long_lines_are_cut_by_characters(world: World) -> None:
    world.put("a.txt", "é" * 2000 + "\n" + "ü" * 2001 + "\n" + "x" * 1_000_000 + "\nend\n")
    lines = (await world.use("read", file_path="a.txt")).splitlines()
    assert lines[0] == "     1\t" + "é" * 2000
    assert lines[1] == "     2\t" + "ü" * 2000 + "... (line truncated to 2000 chars)"
    assert lines[3] == "     4\tend"


async def test_a_text_that_is_too_long_is_only_announced(world: World) -> None:
    world.put("lines.txt", "x\n" * 2001)
    world.put("bytes.txt", "x" * 1000 + "\n" + "y\n" * 10 + ("z" * 1000 + "\n") * 60)
    for name, size in (("lines.txt", "4,002"), ("bytes.txt", "61,081")):
        result = await world.result("read", {"file_path": name})
        assert f"'{name}' is too long" in result["content"][0]["text"]
        assert size in result["content"][0]["text"]
        assert result["content"][0]["_meta"] == {"ai.nanobot.meta/skip-truncation": True}
    assert (await world.use("read", file_path="lines.txt", limit=2000)).count("\n") == 2000
    assert (await world.use("read", file_path="lines.txt", offset=2000)) == "  2001\tx\n"
    world.put("fits.txt", "x\n" * 2000)
    assert (await world.use("read", file_path="fits.txt")).count("\n") == 2000


async def test_an_image_is_read_as_an_image(world: World) -> None:
    world.put("a.png", b"\x89PNG\0data")
    content = (await world.result("read", {"file_path": "a.png"}))["content"]
    assert content == [
        {
            "type": "image",
            "data": base64.b64encode(b"\x89PNG\0data").decode(),
            "mimeType": "image/png",
            "_meta": {"ai.nanobot.meta/skip-truncation": True},
        }
    ]
    world.put("big.jpg", b"x" * 10_000_001)
    assert "10,000,001 bytes" in await world.fail("read", file_path="big.jpg")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"file_path": "gone.txt"}, "No such file or directory"),
        ({"file_path": "sub"}, "is a directory"),
        ({"file_path": "."}, "is a directory"),
        ({"file_path": "pipe"}, "not a regular file"),
        ({"file_path": "binary"}, "is a binary file"),
        ({"file_path": "a.txt", "offset": -1}, "offset must be >= 0"),
        ({"file_path": "a.txt", "limit": 0}, "limit must be > 0"),
        ({"file_path": "a.txt", "pages": "1"}, "pages is only supported for PDF files"),
        ({"file_path": "a.png", "limit": 1}, "limit is not supported for image files"),
        ({"file_path": "a.pdf", "offset": 1}, "offset is not supported for PDF files"),
        ({"file_path": "a\0b"}, "NUL"),
        ({}, "file_path"),
    ],
)
async def test_what_cannot_be_read_is_refused_with_its_reason(
    world: World, arguments: dict[str, object], complaint: str
) -> None:
    world.put("a.txt", "x")
    world.put("a.png", "x")
    world.put("a.pdf", "x")
    world.put("binary", b"ab\0c")
    world.put("sub/x")
    os.mkfifo(world.folder / "pipe")
    assert complaint in await world.fail("read", **arguments)


async def test_an_empty_file_and_an_offset_behind_the_end_are_told(world: World) -> None:
    world.put("empty")
    world.put("short", "1\n2\n")
    assert await world.use("read", file_path="empty") == "The file 'empty' exists and is empty."
    assert (
        await world.use("read", file_path="short", offset=5) == "'short' has 2 lines; none is left after 5."
    )


# --- write


async def test_a_new_file_is_written_with_its_folders(world: World) -> None:
    assert await world.use("write", file_path="a/b/c.txt", content="é\n") == (
        "Successfully wrote to file: a/b/c.txt"
    )
    file = world.folder / "a/b/c.txt"
    assert file.read_bytes() == "é\n".encode()
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert [f.name for f in file.parent.iterdir()] == ["c.txt"]


async def test_an_existing_file_keeps_its_mode_and_must_have_been_read(world: World) -> None:
    file = world.put("run.sh", "old")
    file.chmod(0o750)
    assert "file has not been read" in await world.fail("write", file_path="run.sh", content="new")
    await world.use("read", file_path="run.sh")
    assert "has not been read" in await world.fail("write", file_path="run.sh", content="new", thread="t2")
    await world.use("write", file_path="run.sh", content="new")
    await world.use("write", file_path="run.sh", content="newer")  # what one wrote oneself is known
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("newer", 0o750)

    file.write_text("somebody else's")
    assert "file changed since it was read" in await world.fail("write", file_path="run.sh", content="x")
    assert file.read_text() == "somebody else's"


async def test_a_link_inside_the_folder_is_written_through(world: World) -> None:
    target = world.put("real/a.txt", "old")
    (world.folder / "link.txt").symlink_to("real/a.txt")
    (world.folder / "absolute").symlink_to(world.folder / "real")
    await world.use("read", file_path="link.txt")
    await world.use("write", file_path="absolute/a.txt", content="new")
    assert target.read_text() == "new"
    assert (world.folder / "link.txt").is_symlink()


async def test_what_cannot_be_written_is_refused_and_leaves_nothing(world: World) -> None:
    world.put("file", "x")
    world.put("sub/x")
    assert "not a regular file" in await world.fail("write", file_path="sub", content="x")
    assert "Not a directory" in await world.fail("write", file_path="file/x", content="x")
    assert sorted(f.name for f in world.folder.iterdir()) == ["file", "sub"]


# --- edit


@pytest.mark.parametrize(
    ("content", "old", "new", "everywhere", "expected"),
    [
        ("a b c", "b", "B", False, "a B c"),
        ("x x x", "x", "y", True, "y y y"),
        ("aaa", "aa", "b", True, "ba"),
        ("a\r\nb\r\nc\r\n", "a\nb", "A\nB", False, "A\r\nB\r\nc\r\n"),
        ("a\r\nb\r\n", "a", "1\n2", False, "1\r\n2\r\nb\r\n"),
        ("a\nb\r\nc\r\n", "b\nc", "B\nC", False, "a\nB\r\nC\r\n"),
        ("a\nb", "a\nb", "", False, ""),
    ],
)
async def test_one_piece_is_replaced_and_line_ends_are_kept(
    world: World, content: str, old: str, new: str, everywhere: bool, expected: str
) -> None:
    file = world.put("a", content)
    await world.use("read", file_path="a")
    told = await world.use("edit", file_path="a", old_string=old, new_string=new, replace_all=everywhere)
    assert told == "Successfully edited file: a"
    assert file.read_bytes() == expected.encode()


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("", "x", "old_string is required"),
        ("a", "a", "must be different"),
        ("def go(self):", "x", "not found in content; the nearest is line 2: 'def go(this):'"),
        ("nothing like it at all, zzz", "x", "old_string not found in content"),
        ("pass", "x", "occurs 2 times (lines 3, 5)"),
    ],
)
async def test_an_edit_that_is_not_clear_says_what_is_there(
    world: World, old: str, new: str, complaint: str
) -> None:
    content = "class A:\n    def go(this):\n        pass\n    def stop(this):\n        pass\n"
    file = world.put("a.py", content)
    await world.use("read", file_path="a.py")
    assert complaint in await world.fail("edit", file_path="a.py", old_string=old, new_string=new)
    assert file.read_text() == content


async def test_edits_need_the_file_to_be_known_and_utf_8(world: World) -> None:
    world.put("a", "x")
    world.put("latin", b"caf\xe9")
    assert "has not been read" in await world.fail("edit", file_path="a", old_string="x", new_string="y")
    await world.use("read", file_path="latin")
    assert "not UTF-8" in await world.fail("edit", file_path="latin", old_string="c", new_string="y")
    assert "No such file" in await world.fail("edit", file_path="b", old_string="x", new_string="y")


async def test_edits_that_are_asked_for_at_once_all_happen(world: World) -> None:
    file = world.put("a", "".join(f"<{n}>" for n in range(20)))
    await world.use("read", file_path="a")

    async def edit(n: int) -> None:
        await world.use("edit", file_path="a", old_string=f"<{n}>", new_string=f"({n})")

    async with anyio.create_task_group() as group:
        for n in range(20):
            group.start_soon(edit, n)
    assert file.read_text() == "".join(f"({n})" for n in range(20))


# --- where tools may not go


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "sub/../../secret",
        "{base}/secret",
        "{folder}/../secret",
        "/etc/passwd",
        "link-out",
        "link-up/secret",
        "link-absolute/secret",
        "chain",
        "sub/link-up-twice/secret",
    ],
)
async def test_no_path_leads_outside(world: World, path: str) -> None:
    secret = world.base / "secret"
    secret.write_text("treasure")
    world.put("sub/x")
    for name, target in {
        "link-out": "../secret",
        "link-up": "..",
        "link-absolute": str(world.base),
        "chain": "link-out",
        "sub/link-up-twice": "../..",
    }.items():
        (world.folder / name).symlink_to(target)
    path = path.format(base=world.base, folder=world.folder)
    assert "outside the working folder" in await world.fail("read", file_path=path)
    assert "outside the working folder" in await world.fail("write", file_path=path, content="gone")
    assert "outside the working folder" in await world.fail("grep", pattern="treasure", path=path)
    assert secret.read_text() == "treasure"


async def test_links_that_lead_round_in_a_circle_end(world: World) -> None:
    (world.folder / "a").symlink_to("b")
    (world.folder / "b").symlink_to("a")
    assert "Too many links" in await world.fail("read", file_path="a")


async def test_a_home_inside_the_working_folder_is_closed(tmp_path: Path) -> None:
    world = World(tmp_path, sandbox=None, home_name="work/.nanobot")
    (world.home / "nanobot.db").write_text("treasure")
    (world.folder / "way").symlink_to(".nanobot")
    for path in (".nanobot/nanobot.db", "way/nanobot.db", ".nanobot"):
        assert "closed to tools" in await world.fail("read", file_path=path)
    assert "closed to tools" in await world.fail("write", file_path=".nanobot/new", content="x")
    assert await world.use("grep", pattern="treasure", glob="**/.*/**") == "No matches found"
    assert await world.use("glob", pattern="**/.nanobot/*") == "No files found matching pattern"


async def test_the_secrets_of_a_home_stay_closed_when_it_is_the_working_folder(tmp_path: Path) -> None:
    world = World(tmp_path, sandbox=None, env={"HOME": str(tmp_path / "work"), "PATH": os.environ["PATH"]})
    world.put(".ssh/id_rsa", "treasure")
    world.put(".netrc", "treasure")
    world.put(".bashrc", "treasure")
    for path in (".ssh/id_rsa", ".netrc"):
        assert "closed to tools" in await world.fail("read", file_path=path)
        assert "closed to tools" in await world.fail("write", file_path=path, content="x")
    assert await world.use("grep", pattern="treasure", glob=".*") == ".bashrc"
    assert await world.use("glob", pattern=".*/**") == "No files found matching pattern"


async def test_without_a_working_folder_each_conversation_has_its_own(world: World) -> None:
    from nanobot.wire.call import Call
    from nanobot.wire.rpc import Payload

    for thread in ("one", "two", "../three"):
        asked = Payload.of({"name": "write", "arguments": {"file_path": "a", "content": thread}})
        result = await world.server.request("tools/call", asked, Call(thread=thread))
        assert not result.value.get("isError")
    assert (world.home / "files/one/a").read_text() == "one"
    assert (world.home / "files/two/a").read_text() == "two"
    assert len(list((world.home / "files").iterdir())) == 3
    assert not (world.home / "three").exists()


async def test_a_folder_that_is_swapped_for_a_link_while_it_is_used_never_leads_outside(world: World) -> None:
    outside = world.base / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("treasure")
    world.put("sub/a.txt", "harmless")
    stop = threading.Event()

    def swap() -> None:
        sub, aside, link = world.folder / "sub", world.folder / "aside", world.folder / "link"
        while not stop.is_set():
            sub.rename(aside)
            link.symlink_to(outside)
            link.rename(sub)
            sub.unlink()
            try:
                aside.rename(sub)
            except OSError:  # a file was written meanwhile, and a folder made for it
                shutil.rmtree(sub)
                aside.rename(sub)

    from nanobot.builtin.server import ToolFailed
    from nanobot.builtin.system.paths import Folder

    folder = Folder(world.folder)
    racer = threading.Thread(target=swap)
    racer.start()
    outcomes: dict[str, int] = {}
    try:
        for n in range(10_000):
            try:
                with folder.place("sub/a.txt") as place, place.open() as file:
                    outcome = file.read().decode()
                if n % 100 == 0:
                    with folder.place(f"sub/new-{n}.txt") as place:
                        place.replace(b"x", known=None)
            except (ToolFailed, OSError) as e:
                outcome = type(e).__name__
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    finally:
        stop.set()
        racer.join()
    assert "treasure" not in outcomes
    assert outcomes["harmless"] > 0
    assert [f.name for f in outside.iterdir()] == ["a.txt"]
