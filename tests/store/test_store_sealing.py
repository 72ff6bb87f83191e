"""Secrets at rest: only the right key opens them, and only where they belong."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.errors import StoreError
from nanobot.store.sealing import KEY_FILE, KEY_VARIABLE, PREVIOUS_VARIABLE, CannotOpen, load_sealer


def test_what_is_sealed_can_be_opened_by_the_next_process(tmp_path: Path) -> None:
    sealed = load_sealer(tmp_path, {}).seal(b"s3cret", b"here")
    assert b"s3cret" not in sealed
    assert load_sealer(tmp_path, {}).open(sealed, b"here") == b"s3cret"
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert [p.name for p in tmp_path.iterdir()] == [KEY_FILE]


def test_it_opens_nowhere_else_and_not_after_any_change(tmp_path: Path) -> None:
    sealer = load_sealer(tmp_path, {})
    sealed = sealer.seal(b"s3cret", b"here")
    assert sealed != sealer.seal(b"s3cret", b"here")
    head, _, text = sealed.rpartition(b":")
    for wrong in (
        head + b":" + (b"B" if text[:1] == b"A" else b"A") + text[1:],
        sealed[:-4],
        head + b":",
        b"enc:v1:00000000:" + text,
        b"s3cret",
        b"",
    ):
        with pytest.raises(CannotOpen):
            sealer.open(wrong, b"here")
    with pytest.raises(CannotOpen):
        sealer.open(sealed, b"there")


def test_a_key_can_be_replaced_and_old_values_still_open(tmp_path: Path) -> None:
    old = load_sealer(tmp_path, {KEY_VARIABLE: " one \n"})
    assert not (tmp_path / KEY_FILE).exists()
    sealed = old.seal(b"x", b"")
    new = load_sealer(tmp_path, {KEY_VARIABLE: "two", PREVIOUS_VARIABLE: "one"})
    assert new.open(sealed, b"") == b"x"
    assert (new.is_current(sealed), new.is_current(new.seal(b"x", b""))) == (False, True)
    with pytest.raises(CannotOpen):
        load_sealer(tmp_path, {KEY_VARIABLE: "two"}).open(sealed, b"")


def test_a_configured_key_comes_first_and_the_key_file_still_opens(tmp_path: Path) -> None:
    by_file = load_sealer(tmp_path, {}).seal(b"x", b"")
    configured = load_sealer(tmp_path, {KEY_VARIABLE: "other"}, configured="mine")
    assert configured.open(by_file, b"") == b"x"
    assert load_sealer(tmp_path, {}, configured="mine").open(configured.seal(b"y", b""), b"") == b"y"


def test_an_empty_key_file_is_refused_and_a_blank_variable_does_not_count(tmp_path: Path) -> None:
    load_sealer(tmp_path, {KEY_VARIABLE: "  "})
    assert (tmp_path / KEY_FILE).exists()
    (tmp_path / KEY_FILE).write_text("")
    with pytest.raises(StoreError, match="empty"):
        load_sealer(tmp_path, {})
