"""Nothing that is shown of a configuration holds a secret."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.config.redact import redact, redact_text
from nanobot.config.yaml_dump import dump_yaml

SECRET = st.text(
    st.characters(codec="utf-8", exclude_characters=" /&#\t\n\r", exclude_categories=["Z", "C"]), max_size=12
).map(lambda tail: "CANARY" + tail)


def places(secret: str) -> dict[str, Any]:
    """A document with `secret` in every place where one may stand."""
    server = {
        "command": "npx",
        "env": {"X": secret, "Y": f"${{A:-{secret}}}"},
        "headers": {"Authorization": f"Bearer {secret}", "X-Any": secret, "Z": f"${{A}}{secret}"},
        "url": f"https://user:{secret}@host/mcp?api_key={secret}&page=2&x-token={secret}",
        "args": [
            "--token", secret, f"--api-key={secret}", "--password", secret, f"PGPASSWORD={secret}",
            "--header", f"Authorization: Bearer {secret}", "-H", f"X-Api-Key: {secret}", f"http://{secret}@h/",
        ],
    }  # fmt: skip
    document: dict[str, Any] = {
        "env": {"A": {"default": secret}, "B": {"default": secret, "sensitive": True}},
        "mcpServers": {"s": server},
        "auth": {"oauthClientSecret": secret, "encryptionKey": secret, "jwks": secret},
        "llmProviders": {
            "p": {
                "apiKey": secret,
                "headers": {"x-key": secret},
                "baseURL": f"https://{secret}@gw/v1?key={secret}",
            }
        },
        "agents": {"a": {"metadata": {"apiToken": secret, "link": f"https://h/?sig={secret}"}}},
    }
    return document | {"profiles": {"x": copy.deepcopy(document)}}


@given(SECRET)
def test_a_canary_in_every_sensitive_place_is_never_shown(secret: str) -> None:
    document = places(secret)
    before = copy.deepcopy(document)
    shown = redact(document)
    assert "CANARY" not in json.dumps(shown, ensure_ascii=False)
    assert "CANARY" not in dump_yaml(shown)
    assert document == before


@given(SECRET)
def test_redacting_twice_is_redacting_once(secret: str) -> None:
    shown = redact(places(secret))
    assert redact(shown) == shown


def test_what_is_no_secret_stays() -> None:
    document = {
        "env": {"A": {"default": "eu", "sensitive": False}, "B": {"description": "the key", "default": ""}},
        "mcpServers": {
            "s": {
                "url": "https://${USER}@host/mcp?page=2&token=${TOK}",
                "headers": {"Authorization": "Bearer ${TOK}", "X": "${A}${B_1}", "E": ""},
                "args": ["-y", "@scope/pkg", "--token", "${TOK}", "--verbose", "https://h/@scope/x?y=1"],
            }
        },
        "llmProviders": {"p": {"apiKey": "${KEY}", "dialect": "OpenAIResponses"}},
        "agents": {"a": {"maxTokens": 5, "description": "See https://example.com/a?b=c", "chat": False}},
    }
    assert redact(document) == document


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgres://u:p@h/db", "postgres://***@h/db"),
        ("see http://a/?token=x and http://b/?q=1", "see http://a/?token=*** and http://b/?q=1"),
        ("mail me@example.com", "mail me@example.com"),
        ("https://h/cb#access_token=abc&state=1", "https://h/cb#access_token=***&state=1"),
    ],
)
def test_urls_in_text(text: str, shown: str) -> None:
    assert redact_text(text) == shown
