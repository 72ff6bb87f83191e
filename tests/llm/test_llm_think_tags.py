"""Thinking between tags, told from text however the stream is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.llm.think_tags import ThinkTags


def told_apart(*pieces: str) -> tuple[str, str]:
    """(visible text, thinking)"""
    tags = ThinkTags()
    found = [part for piece in pieces for part in tags.split(piece)]
    found += tags.end()
    return (
        "".join(text for thinking, text in found if not thinking),
        "".join(text for thinking, text in found if thinking),
    )


@pytest.mark.parametrize(
    ("text", "visible", "thinking"),
    [
        ("plain", "plain", ""),
        ("a < b and `c`", "a < b and `c`", ""),
        ("<think>hm</think>yes", "yes", "hm"),
        ("<thinking>hm</thinking>yes", "yes", "hm"),
        ("one <thought>hm</thought> two", "one  two", "hm"),
        ("<think>never closed", "", "never closed"),
        ("yes <think>never closed", "yes never closed", "never closed"),
        ("</think>yes", "yes", ""),
        ("yes</think>", "yes", ""),
        ("yes</think> and", "yes</think> and", ""),
        ("<think广 is wide", "广 is wide", ""),
        ("<thinker> is a word", "<thinker> is a word", ""),
        ("<b>bold</b> <", "<b>bold</b> <", ""),
        ("```\n<think>code</think>\n```\n<think>hm</think>x", "```\n<think>code</think>\n```\nx", "hm"),
        ("```<think>", "```<think>", ""),
        ("<thi", "<thi", ""),
        ("``", "``", ""),
    ],
)
def test_text_and_thinking(text: str, visible: str, thinking: str) -> None:
    assert told_apart(text) == (visible, thinking)
    assert told_apart(*text) == (visible, thinking)


WORDS = "<think> </think> <thought> </ < ` ``` a thi nk> 广 <thinking >".split()
FRAGMENTS = st.sampled_from([*WORDS, " ", "\n"])


@given(st.lists(FRAGMENTS, max_size=12), st.data())
def test_where_the_stream_is_cut_makes_no_difference(fragments: list[str], data: st.DataObject) -> None:
    text = "".join(fragments)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert told_apart(*pieces) == told_apart(text)
