"""Who may use `nanobot run`, as its options and environment say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def environment(home: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "NANOBOT_HOME": str(home / "nb"), **more}


def run(home: Path, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nanobot", "run", *args],
        env=environment(home, **more),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
    )


@contextmanager
def running(home: Path, *args: str, until: str, **more: str) -> Iterator[list[str]]:
    """The program until it said `until`; what it said up to then."""
    with subprocess.Popen(
        [sys.executable, "-m", "nanobot", "run", *args],
        env=environment(home, **more),
        cwd=home,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        said: list[str] = []
        try:
            for line in process.stderr:
                said.append(line)
                if until in line:
                    break
            yield said
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)


def test_options_and_variables_are_the_keys_of_auth_and_are_checked_like_them(tmp_path: Path) -> None:
    refused = run(tmp_path, "--oauth-client-id", "x", NANOBOT_RUN_OAUTH_CLIENT_SECRET="CANARY")
    assert refused.returncode == 2
    assert "(command line): error[bad-auth] auth.oauthClientId" in refused.stderr
    assert "`oauthAuthorizeUrl`" in refused.stderr
    assert "CANARY" not in refused.stderr
    other = run(tmp_path, "--apikey-auth-webhook-url", "http://example.com/check")
    assert "auth.apiKeyAuthWebhookUrl" in other.stderr


def test_r13_beyond_this_machine_only_with_authentication(tmp_path: Path) -> None:
    refused = run(tmp_path, "-a", "0.0.0.0:0")
    assert (refused.returncode, "without signing in" in refused.stderr) == (2, True)
    options = ("--api-key-auth-webhook-url", "https://keys.example/check", "-a", "0.0.0.0:0")
    with running(tmp_path, *options, until="Starting server") as said:
        assert any("Starting server url=http://0.0.0.0:" in line for line in said)


def test_r12_with_a_required_secret_the_start_shows_a_link_but_never_the_secret(tmp_path: Path) -> None:
    config = tmp_path / "nanobot.yaml"
    config.write_text("server: {requireSecret: true}\n")
    with running(tmp_path, "./nanobot.yaml", "-a", "localhost:0", until="/login?code=") as said:
        secret = (tmp_path / "nb" / "launch-secret").read_text().strip()
        assert not any(secret in line for line in said)


@pytest.mark.parametrize("flag", ["--encryption-key", "--oauth-client-secret", "--jwks"])
def test_r21_secrets_of_options_are_masked_where_the_configuration_is_shown(
    flag: str, tmp_path: Path
) -> None:
    options = ("--oauth-client-id", "x", "--oauth-authorize-url", "https://idp.example")
    trust = ("--trusted-issuer", "https://idp.example", "--trusted-audiences", "us")
    refused = run(
        tmp_path, *options, *trust, "--oauth-client-secret", "s", flag, "CANARY", "-a", "bad address"
    )
    assert refused.returncode == 2
    assert "CANARY" not in refused.stderr + refused.stdout
