"""Text that is nearly JSON is read in one go, whatever it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.wire.mending import MAX_BYTES, mended


@given(st.binary(max_size=200).map(lambda text: b'{"' + text))
def test_mending_keeps_whatever_is_in_strings(text: bytes) -> None:
    assert mended(mended(text)) == mended(text)


@pytest.mark.parametrize("piece", [b"a", b"a\\", b'\\"', b'"', b"\\", b"NaN", b'"NaN', b"\\ud83d"])
def test_a_string_that_never_ends_keeps_nobody_busy(piece: bytes) -> None:
    text = b'{"' + piece * (MAX_BYTES // len(piece) - 2)
    assert mended(text).startswith(b'{"')
