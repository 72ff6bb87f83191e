"""Server-sent events survive any cut of the bytes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.sse import SseEvent, SseParser, SseTooLong, format_event

STREAM = (
    b": hello\n\nid: 1\nretry: 3000\ndata:\n\nevent: ping\ndata: {}\r\n\r\n"
    b"data: a\rdata: b\r\rid: 9\ndata:x\n\nunknown: y\n\ndata: tail without its blank line\n"
)
EXPECTED = [
    SseEvent(b"", comment=True),
    SseEvent(b"", id="1", retry=3000),
    SseEvent(b"{}", event="ping"),
    SseEvent(b"a\nb"),
    SseEvent(b"x", id="9"),
]


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_events_do_not_depend_on_where_the_bytes_are_cut(cuts: list[int]) -> None:
    parser = SseParser()
    edges = [0, *sorted(cuts), len(STREAM)]
    found: list[SseEvent] = []
    for start, end in itertools.pairwise(edges):
        found += parser.feed(STREAM[start:end])
    assert found == EXPECTED


@given(
    data=st.text().map(lambda s: s.replace("\r", "").encode()), event=st.sampled_from([None, "message", "x"])
)
def test_what_is_formatted_is_parsed_back(data: bytes, event: str | None) -> None:
    [found] = SseParser().feed(format_event(data, event=event, id="7", retry=5))
    assert found == SseEvent(data, event or "message", "7", 5)


def test_an_event_over_the_limit_is_an_error_even_without_a_line_end() -> None:
    parser = SseParser(max_event_bytes=1000)
    for _ in range(10):
        parser.feed(b"x" * 100)
    with pytest.raises(SseTooLong, match="more than 1000 bytes"):
        parser.feed(b"x")


@pytest.mark.parametrize("retry", [b"9" * 5000, b"-1", b"1.5", "²".encode()])
def test_a_senseless_pause_is_no_pause(retry: bytes) -> None:
    assert SseParser().feed(b"retry: " + retry + b"\ndata: x\n\n") == [SseEvent(b"x")]


def test_an_event_of_many_short_lines_is_limited_too() -> None:
    parser = SseParser(max_event_bytes=1000)
    for _ in range(1000):
        parser.feed(b"data:\n")
    with pytest.raises(SseTooLong):
        parser.feed(b"data:\n")
