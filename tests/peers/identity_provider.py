"""An identity provider on loopback: signs tokens, logs people in at once, and knows API keys."""

from __future__ import annotations

import base64
import hashlib
import secrets
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import ECKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from nanobot.aio import task_group

AUDIENCE = "https://bot.example"
CLIENT_ID, CLIENT_SECRET = "nanobot-at-idp", "CANARY-idp-secret"


@dataclass
class IdentityProvider:
    """`asked` lists the paths that were requested. Everything else may be changed while it runs."""

    url: str = ""
    keys: dict[str, ECKey] = field(default_factory=dict)
    current: str = ""
    asked: list[str] = field(default_factory=list)
    is_down: bool = False
    user: dict[str, Any] = field(default_factory=lambda: {"sub": "ann", "email": "ann@example.com"})
    expires_in: int | None = 3600
    refuses_refresh: bool = False
    client_secret: str = CLIENT_SECRET
    token_answer: tuple[int, Any] | None = None
    """Status and JSON that the token endpoint answers everything with."""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    verdicts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What the webhook says, by API key."""
    forms: list[dict[str, str]] = field(default_factory=list)
    """What was posted to the token endpoint."""

    def new_key(self) -> None:
        """Sign with a new key from now on, and publish it beside the others."""
        self.current = f"k{len(self.keys) + 1}"
        self.keys[self.current] = ECKey.generate_key("P-256", {"kid": self.current})

    def token(self, *, header: dict[str, Any] | None = None, key: Any = None, **claims: Any) -> str:
        """A good token; `claims` change it, and None takes one out."""
        now = int(time.time())
        whole = {"iss": self.url, "aud": AUDIENCE, "sub": "ann", "exp": now + 300, "nbf": now - 5} | claims
        said = {"alg": "ES256", "kid": self.current} | (header or {})
        kept = {name: value for name, value in whole.items() if value is not None}
        return jwt.encode(said, kept, key or self.keys[self.current], algorithms=[said["alg"]])

    def count(self, path: str) -> int:
        return self.asked.count(path)

    @property
    def jwks(self) -> dict[str, Any]:
        return {"keys": [{**key.as_dict(private=False), "kid": kid} for kid, key in self.keys.items()]}

    async def _answer(self, request: Request) -> Response:
        path = request.url.path
        self.asked.append(path)
        if self.is_down:
            return Response(status_code=503)
        match path:
            case "/.well-known/openid-configuration":
                ends = {f"{name}_endpoint": f"{self.url}/{name}" for name in ("authorization", "token")}
                more = {"userinfo_endpoint": f"{self.url}/userinfo", "jwks_uri": f"{self.url}/jwks"}
                return JSONResponse({"issuer": self.url, **ends, **more})
            case "/jwks":
                return JSONResponse(self.jwks)
            case "/check":
                return self._check(request.headers.get("authorization", ""), await request.json())
            case "/authorization":
                return self._authorize(dict(request.query_params))
            case "/token":
                return self._token(dict(parse_qsl((await request.body()).decode())))
            case "/userinfo":
                good = request.headers.get("authorization", "").startswith("Bearer CANARY-idp-at-")
                return JSONResponse(self.user) if good else Response(status_code=401)
            case _:
                return Response(status_code=404)

    def _check(self, authorization: str, question: dict[str, Any]) -> Response:
        verdict = self.verdicts.get(authorization.removeprefix("Bearer "), {"allowed": False})
        return JSONResponse({**verdict, "asked": question})

    def _authorize(self, query: dict[str, str]) -> Response:
        code = secrets.token_hex(8)
        self.codes[code] = query
        back = urlencode({"code": code, "state": query["state"], "iss": self.url})
        return RedirectResponse(f"{query['redirect_uri']}?{back}", status_code=302)

    def _token(self, form: dict[str, str]) -> Response:
        self.forms.append(form)
        if self.token_answer is not None:
            status, content = self.token_answer
            return JSONResponse(content, status)
        if (form.get("client_id"), form.get("client_secret")) != (CLIENT_ID, self.client_secret):
            return JSONResponse({"error": "invalid_client"}, 401)
        if form["grant_type"] == "refresh_token":
            if self.refuses_refresh:
                return JSONResponse({"error": "invalid_grant"}, 400)
        else:
            asked = self.codes.pop(form["code"], None)
            digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
            proof = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            if (
                asked is None
                or proof != asked.get("code_challenge")
                or (form["redirect_uri"] != asked["redirect_uri"])
            ):
                return JSONResponse({"error": "invalid_grant"}, 400)
        answer: dict[str, Any] = {
            "token_type": "Bearer",
            "access_token": f"CANARY-idp-at-{secrets.token_hex(4)}",
        }
        answer["refresh_token"] = f"CANARY-idp-rt-{secrets.token_hex(4)}"
        if self.expires_in is not None:
            answer["expires_in"] = self.expires_in
        return JSONResponse(answer)


@asynccontextmanager
async def identity_provider() -> AsyncGenerator[IdentityProvider]:
    provider = IdentityProvider()
    provider.new_key()
    app = Starlette(routes=[Route("/{path:path}", provider._answer, methods=["GET", "POST"])])
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", ws="none"))
    server.capture_signals = _NoSignals  # type: ignore[method-assign]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        provider.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with task_group() as group:
            group.start_soon(server.serve, [listener])
            try:
                yield provider
            finally:
                server.should_exit = server.force_exit = True


def query_of(url: str) -> dict[str, str]:
    """The query parameters of an address."""
    return {name: values[0] for name, values in parse_qs(url.partition("?")[2]).items()}


class _NoSignals:
    """uvicorn would take the signals of the test run."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...
