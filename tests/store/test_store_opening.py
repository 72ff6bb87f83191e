"""Opening a database: new, old, too new, damaged, not ours to write, on a full disk."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, inspect
from tests.peers.needed import needed

from nanobot.errors import StoreError
from nanobot.store import open_store
from nanobot.store.migrations import MIGRATIONS, migrate, schema_version
from nanobot.store.schema import metadata

from .world import message, start, thread

pytestmark = pytest.mark.anyio


async def test_a_new_database_is_readable_by_its_owner_alone(path: Path) -> None:
    async with open_store(path) as store:
        await store.threads.create(thread())
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    files = dict.fromkeys(["nanobot.db", "nanobot.db-wal", "nanobot.db-shm"], 0o600)
    assert modes == {**files, "processes": 0o700}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_a_closed_database_is_one_file(path: Path) -> None:
    async with open_store(path) as store:
        await store.threads.create(thread())
    assert [file.name for file in path.parent.rglob("*") if file.is_file()] == ["nanobot.db"]


async def test_the_migrations_lead_to_the_schema_that_the_program_uses(path: Path) -> None:
    async with open_store(path):
        pass
    migrated, declared = create_engine(f"sqlite:///{path}"), create_engine("sqlite://")
    metadata.create_all(declared)
    try:
        ours, expected = inspect(migrated), inspect(declared)
        assert set(ours.get_table_names()) == {*expected.get_table_names(), "schema_migrations"}
        for table in expected.get_table_names():
            assert _columns(ours, table) == _columns(expected, table)
            assert ours.get_indexes(table) == expected.get_indexes(table)
            assert ours.get_unique_constraints(table) == expected.get_unique_constraints(table)
            assert ours.get_foreign_keys(table) == expected.get_foreign_keys(table)
    finally:
        migrated.dispose()
        declared.dispose()


def _columns(inspector: object, table: str) -> list[tuple[str, str, bool, int]]:
    columns = inspector.get_columns(table)  # type: ignore[attr-defined]
    return [(c["name"], str(c["type"]), bool(c["primary_key"]), bool(c["nullable"])) for c in columns]


async def test_a_database_of_another_program_is_copied_before_ours_joins_it(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as old:
        old.executescript("CREATE TABLE sessions (id TEXT); INSERT INTO sessions VALUES ('old')")
    async with open_store(path) as store:
        await store.threads.create(thread())
    for file in (path, path.with_name("nanobot.db.bak-0")):
        with closing(sqlite3.connect(file)) as raw:
            assert raw.execute("SELECT id FROM sessions").fetchall() == [("old",)]
            has_threads = raw.execute("SELECT 1 FROM sqlite_master WHERE name = 'threads'").fetchone()
            assert (has_threads is not None) == (file == path)
    assert stat.S_IMODE(path.with_name("nanobot.db.bak-0").stat().st_mode) == 0o600


def _add_colour(connection: Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE threads ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue'")


def _break(connection: Connection) -> None:
    connection.exec_driver_sql("DELETE FROM threads")
    raise RuntimeError("half-way")


async def test_an_older_schema_is_brought_up_to_date_with_everything_in_it(path: Path) -> None:
    async with open_store(path) as store:
        await store.threads.create(thread())
        await store.threads.append("t1", [message("m")])
    with _raw(path) as connection:
        migrate(connection, path, [*MIGRATIONS, _add_colour])
        assert schema_version(connection) == len(MIGRATIONS) + 1
        assert connection.exec_driver_sql("SELECT id, colour FROM threads").all() == [("t1", "blue")]
    with _raw(path.with_name(f"nanobot.db.bak-{len(MIGRATIONS)}")) as connection:
        assert schema_version(connection) == len(MIGRATIONS)
        assert connection.exec_driver_sql("SELECT id FROM messages").all() == [("m",)]


async def test_a_migration_that_fails_leaves_the_database_as_it_was(path: Path) -> None:
    async with open_store(path) as store:
        await store.threads.create(thread())
    with _raw(path) as connection, pytest.raises(RuntimeError, match="half-way"):
        migrate(connection, path, [*MIGRATIONS, _add_colour, _break])
    async with open_store(path) as store:
        assert await store.threads.find("t1") is not None


async def test_a_database_of_a_newer_program_is_refused_and_left_alone(path: Path) -> None:
    async with open_store(path) as store:
        await store.threads.create(thread())
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("INSERT INTO schema_migrations VALUES (99, '')")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"schema 99.*newer nanobot.*Upgrade"):
        async with open_store(path):
            pass
    assert path.read_bytes() == before


def _scribble(path: Path) -> None:
    path.write_bytes(b"this is no database at all, " * 100)


def _cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def _overwrite_pages(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 20_000)


@pytest.mark.parametrize("damage", [_scribble, _cut, _overwrite_pages])
async def test_a_damaged_database_is_moved_aside_and_the_way_to_repair_it_is_told(
    path: Path, damage: Callable[[Path], None]
) -> None:
    async with open_store(path) as store:
        await store.threads.create(thread())
        await store.threads.append("t1", [message(f"m{n}", "x" * 500) for n in range(100)])
    damage(path)
    damaged = path.read_bytes()
    with pytest.raises(StoreError, match=r"is damaged\. It was moved to '.*damaged-.*\.recover"):
        async with open_store(path):
            pass
    (aside,) = (file for file in path.parent.glob("nanobot.db*") if file.suffix not in ("-wal", "-shm"))
    assert aside.name.startswith("nanobot.db.damaged-")
    assert aside.read_bytes() == damaged
    async with open_store(path) as store:  # the next start begins anew
        assert await store.threads.recent() == []


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


AS_NOBODY = """
import os
import nanobot.store.database, nanobot.store.statements, sqlalchemy.dialects.sqlite  # while it may
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
async def main():
    try:
        async with open_store(path):
            print("opened")
    except StoreError as e:
        print(e)
anyio.run(main)
"""


@pytest.mark.parametrize("what", ["folder", "file"])
async def test_a_database_that_may_not_be_written_says_who_should_look(open_folder: Path, what: str) -> None:
    path = open_folder / "nanobot.db"
    if what == "file":
        path.touch()
        path.chmod(0o444)
    open_folder.chmod(0o555)
    try:
        with start(AS_NOBODY, path) as process:
            told = process.communicate()[0]
    finally:
        open_folder.chmod(0o755)
    assert f"The database '{path}' cannot be opened: Permission denied." in told


FULL_DISK = """
async def main():
    async with open_store(path) as store:
        await store.threads.create(ThreadRow(id="t1"))
        await store.threads.append("t1", [StoredMessage("first", b"x")])
        ballast = path.with_name("ballast")
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass
        try:
            for n in range(100):
                await store.threads.append("t1", [StoredMessage(f"m{n}", b"x" * 20_000)])
        except StoreError as e:
            print(e)
        stored = len(await store.threads.messages("t1"))
        print("read", stored == n + 1)
        ballast.unlink()
        await store.threads.append("t1", [StoredMessage("last", b"x" * 20_000)])
        print([m.id for m in await store.threads.messages("t1")][-1])
anyio.run(main)
"""


def _can_mount() -> bool:
    if shutil.which("unshare") is None or sys.platform != "linux":
        return False
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@needed(_can_mount(), "a private mount (unshare -rm)")
async def test_on_a_full_disk_reading_goes_on_and_writing_recovers_without_a_restart(tmp_path: Path) -> None:
    mount = f'mount -t tmpfs -o size=1m none {tmp_path} && exec "$@"'
    prefix = ("unshare", "-rm", "sh", "-c", mount, "sh")
    with start(FULL_DISK, tmp_path / "nanobot.db", prefix=prefix) as process:
        told = process.communicate()[0].splitlines()
    assert "is full; nothing was written, reading goes on" in told[0], told
    assert told[1:] == ["read True", "last"]


def test_importing_the_store_loads_no_database_library() -> None:
    check = "import sys, nanobot.store; print({'sqlalchemy', 'sqlite3'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@contextmanager
def _raw(path: Path) -> Iterator[Connection]:
    engine = create_engine(f"sqlite:///{path}", isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()
