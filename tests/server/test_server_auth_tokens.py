"""JSON Web Tokens of a trusted issuer, and API keys that another service knows."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from tests.peers.identity_provider import AUDIENCE, IdentityProvider, identity_provider
from tests.server.world import Answer, Served, served

from nanobot.aio import task_group
from nanobot.config.model import AuthSettings, Config
from nanobot.errors import ConfigError
from nanobot.http import open_http
from nanobot.server.auth.assembly import Authentication
from nanobot.server.auth.jwks import FetchedKeys, GivenKeys
from nanobot.server.auth.jwt import LEEWAY_S, TokenVerifier
from nanobot.server.auth.principal import AuthUnavailable, NotSignedIn
from nanobot.server.auth.webhook import Webhook

pytestmark = pytest.mark.anyio


def trusting(provider: IdentityProvider, **more: Any) -> AuthSettings:
    return AuthSettings(trusted_issuer=provider.url, trusted_audiences=("https://x", AUDIENCE), **more)


async def ask(nanobot: Served, token: str) -> Answer:
    return await nanobot.ask("GET", "/api/threads", headers={"Authorization": f"Bearer {token}"})


NOW = 1_000_000_000_000  # far ahead

BAD_CLAIMS: Mapping[str, dict[str, Any]] = {
    "expired": {"exp": 1_000_000},
    "no expiry": {"exp": None},
    "expiry as text": {"exp": "9999999999"},
    "not yet": {"nbf": NOW},
    "other issuer": {"iss": "https://evil.example"},
    "no issuer": {"iss": None},
    "other audience": {"aud": "https://other.example"},
    "no audience": {"aud": None},
    "other audiences": {"aud": ["https://other.example", 5]},
    "nobody": {"sub": None},
    "empty": {"sub": " "},
    "number": {"sub": 5},
    "line break": {"sub": "ann\nbob"},
    "too long": {"sub": "x" * 256},
}


async def test_r15_only_tokens_made_for_us_by_our_issuer_are_accepted(tmp_path: Path) -> None:
    async with identity_provider() as provider, served(tmp_path, auth=trusting(provider)) as nanobot:
        assert (await ask(nanobot, provider.token())).status == 200
        assert (await ask(nanobot, provider.token(aud=["https://y", AUDIENCE]))).status == 200
        for name, claims in BAD_CLAIMS.items():
            refused = await ask(nanobot, provider.token(**claims))
            assert refused.status == 401, name
            assert 'error="invalid_token"' in refused.headers["www-authenticate"]


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES384", "EdDSA", "Ed25519"])
async def test_the_algorithms_of_public_keys_are_understood(algorithm: str) -> None:
    key: Any
    match algorithm[:2]:
        case "RS" | "PS":
            key = RSAKey.generate_key(2048)
        case "ES":
            key = ECKey.generate_key("P-384")
        case _:
            key = OKPKey.generate_key("Ed25519")
    provider = IdentityProvider(url="https://i")
    given = GivenKeys(json.dumps({"keys": [key.as_dict(private=False)]}))
    verifier = TokenVerifier(given, issuer="https://i", audiences=[AUDIENCE], clock=time.time)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)
        token = provider.token(header={"alg": algorithm}, key=key)
    assert (await verifier.claims(token))["sub"] == "ann"


async def test_r15_a_token_that_somebody_else_signed_is_refused(tmp_path: Path) -> None:
    async with identity_provider() as provider, served(tmp_path, auth=trusting(provider)) as nanobot:
        good = provider.token()
        public = json.dumps(provider.jwks["keys"][0])
        head, payload, signature = good.split(".")
        shared = OctKey.import_key(public)
        forged = [
            provider.token(key=ECKey.generate_key("P-256")),
            provider.token(header={"alg": "HS256"}, key=shared),
            f"{head}.{payload}.",
            f"{head}.{payload}.{signature[:-4]}AAAA",
            f"{head}.{provider.token(sub='bob').split('.')[1]}.{signature}",
            "eyJhbGciOiJub25lIn0." + payload + ".",
            provider.token(header={"kid": "other"}),
        ]
        assert [(await ask(nanobot, token)).status for token in forged] == [401] * len(forged)
        assert (await ask(nanobot, good)).status == 200


async def test_keys_are_fetched_once_and_again_for_a_new_key_but_not_for_every_unknown_one(
    tmp_path: Path,
) -> None:
    async with identity_provider() as provider, served(tmp_path, auth=trusting(provider)) as nanobot:
        for _ in range(5):
            assert (await ask(nanobot, provider.token())).status == 200
        assert provider.count("/jwks") == 1
        for n in range(5):
            assert (await ask(nanobot, provider.token(header={"kid": f"x{n}"}))).status == 401
        assert provider.count("/jwks") == 1  # just fetched: an unknown key is not worth asking again


async def test_a_replaced_key_is_found(tmp_path: Path) -> None:
    clock = [0.0]
    async with identity_provider() as provider, open_http() as http:
        keys = FetchedKeys(http, f"{provider.url}/jwks", lambda: clock[0])
        assert await keys.find("k1")
        provider.new_key()
        clock[0] = 31.0
        assert await keys.find("k2")
        provider.is_down = True
        clock[0] = 5000.0
        assert await keys.find("k2"), "keys that are known outlive an outage"
        assert await keys.find("k3") is None


async def test_an_issuer_that_cannot_be_asked_is_a_503_not_a_401(tmp_path: Path) -> None:
    async with identity_provider() as provider, served(tmp_path, auth=trusting(provider)) as nanobot:
        provider.is_down = True
        answer = await ask(nanobot, provider.token())
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")


async def test_given_keys_need_no_network_and_the_metadata_names_the_issuer(tmp_path: Path) -> None:
    async with identity_provider() as provider:
        auth = trusting(provider, jwks=json.dumps(provider.jwks))
        async with served(tmp_path, auth=auth) as nanobot:
            assert (await ask(nanobot, provider.token())).status == 200
            assert provider.asked == []
            metadata = await nanobot.ask("GET", "/.well-known/oauth-protected-resource")
            assert metadata.json["authorization_servers"] == [provider.url]


@pytest.mark.parametrize("text", ["{", "{}", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "AAAA"}]}', "[]"])
def test_text_that_holds_no_public_key_is_a_configuration_error(text: str, tmp_path: Path) -> None:
    auth = AuthSettings(trusted_issuer="https://i", trusted_audiences=("x",), jwks=text)
    unused: Any = None
    with pytest.raises(ConfigError, match="jwks"):
        Authentication(Config(home=tmp_path, auth=auth), unused, unused).guard(unused, has_pages=False)


async def test_two_subjects_are_two_accounts_and_a_stream_ends_with_its_token(tmp_path: Path) -> None:
    async with identity_provider() as provider, served(tmp_path, auth=trusting(provider)) as nanobot:
        headers = {"Authorization": f"Bearer {provider.token()}"}
        thread = (await nanobot.ask("POST", "/api/threads", {}, headers)).json["id"]
        bob = {"Authorization": f"Bearer {provider.token(sub='bob')}"}
        assert (await nanobot.ask("GET", f"/api/threads/{thread}", headers=bob)).status == 404
        nearly_over = provider.token(exp=int(time.time() - LEEWAY_S) + 2)
        brief = {"Authorization": f"Bearer {nearly_over}"}
        async with nanobot.events(f"/api/events/{thread}", headers=brief) as events:
            assert events.status == 200
            await events.rest()  # ends by itself


async def test_a_webhook_decides_about_keys_and_its_verdict_is_kept_for_a_moment() -> None:
    clock = [0.0]
    async with identity_provider() as provider, open_http() as http:
        provider.verdicts["good"] = {"allowed": True, "sub": "ann", "name": "Ann", "email": "a@x"}
        provider.verdicts["nobody"] = {"allowed": True, "sub": ""}
        provider.verdicts["bad"] = {"allowed": False, "reason": "Revoked."}
        webhook = Webhook(http, f"{provider.url}/check", "srv", lambda: clock[0])

        async def accounts(token: str) -> str:
            try:
                principal = await webhook.recognise(token)
            except NotSignedIn as refused:
                return f"refused: {refused}"
            return principal.account if principal else ""

        async with task_group() as group:
            for _ in range(10):
                group.start_soon(accounts, "good")
        assert await accounts("good") == "ann"
        assert provider.count("/check") == 1
        assert await accounts("bad") == "refused: Revoked."
        assert await accounts("nobody") == "refused: The credential does not say whose it is."
        assert provider.count("/check") == 3
        clock[0] = 6.0  # a bad verdict is asked again sooner than a good one
        provider.verdicts["bad"] = {"allowed": True, "sub": "bob"}
        assert await accounts("bad") == "bob"
        assert await accounts("good") == "ann"
        assert provider.count("/check") == 4
        clock[0] = 61.0
        provider.is_down = True
        with anyio.fail_after(10), pytest.raises(AuthUnavailable):
            await webhook.recognise("good")


async def test_a_webhook_over_http(tmp_path: Path) -> None:
    async with identity_provider() as provider:
        provider.verdicts["CANARY"] = {"allowed": True, "sub": "ann"}
        auth = AuthSettings(api_key_auth_webhook_url=f"{provider.url}/check", mcp_server_id="srv")
        async with served(tmp_path, auth=auth) as nanobot:
            assert (await ask(nanobot, "CANARY")).status == 200
            assert (await ask(nanobot, "other")).status == 401
            provider.is_down = True
            assert (await ask(nanobot, "third")).status == 503
