"""A protected MCP server and its authorization server in one application, as strict as the real ones.

Codes and refresh tokens are good for one use; a refresh token that comes twice ends everything it began.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

WELL_KNOWN_RESOURCE = "/.well-known/oauth-protected-resource"
WELL_KNOWN_SERVER = "/.well-known/oauth-authorization-server"


@dataclass
class OAuthPeer:
    """What it does is chosen by its fields; what it was asked is kept in the lists below them."""

    issuer_path: str = ""
    issuer_says: str | None = None
    """What the metadata call the issuer, if not what it is."""
    resource_says: str | None = None
    hint: bool = True
    """Whether a 401 says where the metadata are."""
    path_form: bool = True
    """Whether they are at the well-known address with the path; else only at the root."""
    described: bool = True
    """Whether the authorization server has metadata at all."""
    dcr: bool = True
    cimd: bool = False
    auth_methods: tuple[str, ...] = ("none",)
    code_methods: tuple[str, ...] | None = ("S256",)
    iss: str | None = "right"
    """`right`, None (left out) or any other issuer, in the answer to an authorization."""
    lasts_s: int = 3600
    scopes: tuple[str, ...] = ()
    tool_scopes: dict[str, str] = field(default_factory=dict[str, str])
    deny: str = ""
    token_status: int = 200
    """Anything else: the token endpoint fails with it."""
    welcomes_nobody: bool = False
    """The MCP server takes no token at all."""

    authorized: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    registered: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    token_requests: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    looked_up: list[str] = field(default_factory=list[str])
    revoked: list[str] = field(default_factory=list[str])
    refused: list[str] = field(default_factory=list[str])
    """Methods of the messages that came without a good token."""
    reuses: int = 0
    messages: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Method and token of every MCP message that was let in."""
    clients: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    access: dict[str, str] = field(default_factory=dict[str, str])
    """Valid access tokens with their scopes."""
    _codes: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    _refresh: dict[str, str] = field(default_factory=dict[str, str])
    _spent: set[str] = field(default_factory=set[str])
    _numbers: count[int] = field(default_factory=lambda: count(1))

    @property
    def refreshes(self) -> int:
        return sum(form["grant_type"] == "refresh_token" for form in self.token_requests)

    def expire(self) -> None:
        """No access token is good any more; refresh tokens are."""
        self.access.clear()

    def end_grants(self) -> None:
        """Nor is any refresh token."""
        self.expire()
        self._refresh.clear()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        await (await self._answer(request))(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        origin, path = f"http://{request.headers['host']}", request.url.path
        issuer = origin + self.issuer_path
        if path.startswith("/.well-known/"):
            self.looked_up.append(path)
        match path.removeprefix(self.issuer_path) if self.issuer_path else path:
            case "/mcp":
                return await self._mcp(request, origin)
            case "/authorize":
                return self._authorize(dict(request.query_params), issuer)
            case "/token":
                return await self._token(request)
            case "/register" if self.dcr:
                return self._register(json.loads(await request.body()))
            case "/revoke":
                form = dict(parse_qsl((await request.body()).decode()))
                self.revoked.append(form["token"])
                self._refresh.pop(form["token"], None)
                return Response()
        if path == WELL_KNOWN_RESOURCE + ("/mcp" if self.path_form else ""):
            described = {"resource": self.resource_says or f"{origin}/mcp", "authorization_servers": [issuer]}
            return JSONResponse(described | {"scopes_supported": list(self.scopes)})
        if path == WELL_KNOWN_SERVER + self.issuer_path and self.described:
            return JSONResponse(self._metadata(issuer))
        return Response("<html>nothing here</html>", 404, media_type="text/html")

    def _metadata(self, issuer: str) -> dict[str, Any]:
        described: dict[str, Any] = {
            "issuer": self.issuer_says or issuer,
            "authorization_endpoint": f"{issuer}/authorize",
            "token_endpoint": f"{issuer}/token",
            "revocation_endpoint": f"{issuer}/revoke",
            "token_endpoint_auth_methods_supported": list(self.auth_methods),
            "client_id_metadata_document_supported": self.cimd,
            "authorization_response_iss_parameter_supported": self.iss is not None,
        }
        if self.dcr:
            described["registration_endpoint"] = f"{issuer}/register"
        if self.code_methods is not None:
            described["code_challenge_methods_supported"] = list(self.code_methods)
        return described

    def _register(self, wish: dict[str, Any]) -> Response:
        self.registered.append(wish)
        id = f"client-{next(self._numbers)}"
        method = wish["token_endpoint_auth_method"]
        secret = {} if method == "none" else {"client_secret": f"canary-client-secret-{id}"}
        self.clients[id] = {**wish, **secret}
        return JSONResponse({"client_id": id, **wish, **secret}, 201)

    def _authorize(self, asked: dict[str, str], issuer: str) -> Response:
        self.authorized.append(asked)
        if asked["client_id"] not in self.clients and not self.cimd:
            return Response("unknown client", 400)
        assert asked["code_challenge_method"] == "S256"
        assert asked["response_type"] == "code"
        answer = {"state": asked["state"]}
        if self.iss is not None:
            answer["iss"] = issuer if self.iss == "right" else self.iss
        if self.deny:
            answer["error"] = self.deny
        else:
            answer["code"] = f"code-{next(self._numbers)}"
            self._codes[answer["code"]] = asked
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(answer)}", 302)

    async def _token(self, request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode()))
        if (basic := request.headers.get("authorization", "")).startswith("Basic "):
            form["client_id"], _, form["basic_secret"] = (
                base64.b64decode(basic.removeprefix("Basic ")).decode().partition(":")
            )
        self.token_requests.append(form)
        if self.token_status != 200:
            return Response("out of order", self.token_status)
        client = self.clients.get(form.get("client_id", ""))
        if client is None and not self.cimd:
            return JSONResponse({"error": "invalid_client"}, 401)
        secret = (client or {}).get("client_secret")
        if secret is not None and secret not in (form.get("client_secret"), form.get("basic_secret")):
            return JSONResponse({"error": "invalid_client"}, 401)
        if form["grant_type"] == "authorization_code":
            asked = self._codes.pop(form["code"], None)
            if asked is None or not _proves(form["code_verifier"], asked["code_challenge"]):
                return JSONResponse({"error": "invalid_grant"}, 400)
            assert form["redirect_uri"] == asked["redirect_uri"]
            assert form.get("resource") == asked.get("resource")
            return self._give(asked.get("scope", ""))
        token = form["refresh_token"]
        if token in self._spent:
            self.reuses += 1
            self.end_grants()
        if token not in self._refresh:
            return JSONResponse({"error": "invalid_grant"}, 400)
        self._spent.add(token)
        return self._give(self._refresh.pop(token))

    def _give(self, scope: str) -> Response:
        access, refresh = (f"canary-{kind}-{next(self._numbers)}" for kind in ("access", "refresh"))
        self.access[access] = scope
        self._refresh[refresh] = scope
        given = {"access_token": access, "token_type": "Bearer", "expires_in": self.lasts_s}
        return JSONResponse(given | {"refresh_token": refresh} | ({"scope": scope} if scope else {}))

    async def _mcp(self, request: Request, origin: str) -> Response:
        body = await request.body()
        message: dict[str, Any] = json.loads(body) if body else {}
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        hint = f' resource_metadata="{origin}{WELL_KNOWN_RESOURCE}{"/mcp" if self.path_form else ""}"'
        if token not in self.access or self.welcomes_nobody:
            self.refused.append(message.get("method", request.method))
            challenge = 'Bearer error="invalid_token",' + hint if self.hint else "Bearer"
            return Response(status_code=401, headers={"WWW-Authenticate": challenge})
        method, tool = message.get("method", request.method), (message.get("params") or {}).get("name", "")
        needed = self.tool_scopes.get(tool, "")
        if method == "tools/call" and needed not in ("", *self.access[token].split()):
            challenge = f'Bearer error="insufficient_scope", scope="{needed}",{hint}'
            return Response(status_code=403, headers={"WWW-Authenticate": challenge})
        self.messages.append((method, token))
        if request.method != "POST":
            return Response(status_code=405)
        if method == "server/discover":
            return Response(status_code=400)
        if "id" not in message or "method" not in message:
            return Response(status_code=202)
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": _result(method)})


def _result(method: str) -> dict[str, Any]:
    if method == "initialize":
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "protected", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("work", "write")]}
    return {"content": [{"type": "text", "text": "done"}]}


def _proves(verifier: str, challenge: str) -> bool:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == challenge


def answer_in(location: str) -> Mapping[str, str]:
    """What a redirect back to us says."""
    return dict(parse_qsl(urlsplit(location).query))
