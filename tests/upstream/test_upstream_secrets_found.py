"""Which of many secrets stand in a text."""

from __future__ import annotations

import json
import random
import string
from urllib.parse import quote

import pytest

from nanobot.upstream.secrecy import FEW, RecentSecrets, Secrecy

CHARS = string.ascii_letters + string.digits + '+/"\\é '


def secret(chance: random.Random) -> str:
    return "eyJhbGciOi" + "".join(chance.choices(CHARS, k=chance.randint(6, 40)))


@pytest.mark.parametrize("count", [1, FEW, FEW * 8])
def test_each_spelling_of_each_secret_is_hidden_however_many_there_are(count: int) -> None:
    chance = random.Random(count)
    secrets = [secret(chance) for _ in range(count)]
    recent = RecentSecrets()
    recent.remember(*secrets)
    for one in secrets:
        for spelled in (one, json.dumps(one, ensure_ascii=False)[1:-1], quote(one), quote(one, safe="")):
            assert spelled not in Secrecy(recent).hide(f"before {spelled} after")
    assert Secrecy(recent).hide("nothing of that kind, eyJhbGciOi") == "nothing of that kind, eyJhbGciOi"


def test_the_latest_are_kept_and_a_value_that_comes_again_counts_as_late() -> None:
    recent = RecentSecrets(most=2)
    recent.remember("first-secret", "second-secret")
    recent.remember("first-secret", "third-secret")
    told = Secrecy(recent).hide("first-secret second-secret third-secret")
    assert told == "*** second-secret ***"


def test_secrets_that_end_alike_are_told_apart_also_when_one_is_forgotten() -> None:
    recent = RecentSecrets(most=2)
    recent.remember("one-same-end", "two-same-end")
    recent.remember("another-value")
    assert Secrecy(recent).hide("one-same-end two-same-end") == "one-same-end ***"
