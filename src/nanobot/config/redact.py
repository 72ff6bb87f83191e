"""What may be shown of a configuration. Secrets become `***`, whatever their length; nothing is modified."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

MASK = "***"

_ONLY_REFERENCES = re.compile(r"(?:Bearer )?(?:\$\{[A-Za-z_][\w.-]*(?::[A-Za-z_][\w.]*)*\})+")
"""`${NAME:-text}` is not among them: its text may be the secret."""
_SECRET_WORD = re.compile(r"token|key|secret|passw|sig|auth|credential|cookie", re.IGNORECASE)
_SECRET_FLAG = re.compile(
    r"--?[\w.-]*(?:token|key|secret|passw|auth|credential|cookie|header)[\w.-]*", re.IGNORECASE
)
_SHORT_HEADER_FLAG = "-H"
_ASSIGNMENT = re.compile(r"(?P<name>[\w.-]+)(?P<sign>=|:\s*)(?P<value>.+)", re.DOTALL)
_SECRET_KEY = re.compile(r"token|api[-_]?key|secret|passw|authorization|credential|cookie", re.IGNORECASE)
_AUTH_SECRETS = ("oauthClientSecret", "encryptionKey", "jwks")
_URL = re.compile(r"\S*://\S*")
_USERINFO = re.compile(r"(?<=://)[^/]*@")
_QUERY_PART = re.compile(r"(?P<name>[?&#][^=&#]*)=(?P<value>[^&#]*)")


def redact(document: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of an effective document (canonical keys) in which no secret is left."""
    return {key: _section(key, value) for key, value in document.items()}


def redact_text(text: str) -> str:
    """`text` without the userinfo of URLs and without query parameters that sound secret."""
    return _URL.sub(lambda url: _url(url[0]), text) if "://" in text else text


def _section(key: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return _anything(value)
    section = cast("dict[str, Any]", value)
    match key:
        case "env":
            return {name: _variable(one) for name, one in section.items()}
        case "mcpServers":
            return {name: _server(one) for name, one in section.items()}
        case "llmProviders":
            return {name: _provider(one) for name, one in section.items()}
        case "hookSettings":
            return _hook_settings(section)
        case "auth":
            shown = _anything(section)
            return shown | {key: _masked(section[key]) for key in _AUTH_SECRETS if key in section}
        case "profiles":
            return {name: redact(one) for name, one in section.items()}
        case _:
            return _anything(section)


def _variable(variable: Any) -> Any:
    shown = _anything(variable)
    if "default" in shown and shown.get("sensitive", True):
        shown["default"] = _masked(shown["default"])
    return shown


def _server(server: Any) -> Any:
    shown = _anything(server)
    for key in ("env", "headers"):
        if isinstance(shown.get(key), dict):
            shown[key] = {name: _masked(value) for name, value in server[key].items()}
    if isinstance(shown.get("args"), list):
        shown["args"] = _arguments(server["args"])
    if isinstance(shown.get("oauth"), dict) and "clientSecret" in shown["oauth"]:
        shown["oauth"]["clientSecret"] = _masked(server["oauth"]["clientSecret"])
    return shown


def _hook_settings(settings: Any) -> Any:
    shown = _anything(settings)
    if isinstance(shown.get("env"), dict):
        shown["env"] = {name: _masked(value) for name, value in settings["env"].items()}
    return shown


def _provider(provider: Any) -> Any:
    shown = _anything(provider)
    if "apiKey" in shown:
        shown["apiKey"] = _masked(provider["apiKey"])
    if isinstance(shown.get("headers"), dict):
        shown["headers"] = {name: _masked(value) for name, value in provider["headers"].items()}
    return shown


def _arguments(arguments: list[Any]) -> list[str]:
    """Command-line arguments without what follows a flag or a name that sounds secret."""
    shown: list[str] = []
    follows_secret_flag = False
    for argument in map(str, arguments):
        if follows_secret_flag and not argument.startswith("--"):
            shown.append(_masked(argument))
            follows_secret_flag = False
            continue
        follows_secret_flag = argument == _SHORT_HEADER_FLAG or _SECRET_FLAG.fullmatch(argument) is not None
        assignment = _ASSIGNMENT.fullmatch(argument)
        if (
            assignment
            and not argument.startswith(("http:", "https:"))
            and _SECRET_WORD.search(assignment["name"])
        ):
            shown.append(assignment["name"] + assignment["sign"] + _masked(assignment["value"]))
        else:
            shown.append(redact_text(argument))
    return shown


def _anything(value: Any) -> Any:
    """Free data: URLs lose their secrets, and so does text under a key that sounds secret."""
    match value:
        case str():
            return redact_text(value)
        case list():
            return [_anything(item) for item in cast("list[Any]", value)]
        case dict():
            shown = cast("dict[str, Any]", value)
            return {
                key: _masked(below)
                if isinstance(below, str) and _SECRET_KEY.search(key)
                else _anything(below)
                for key, below in shown.items()
            }
        case _:
            return value


def _masked(value: Any) -> Any:
    if not isinstance(value, str) or not value or _ONLY_REFERENCES.fullmatch(value):
        return value
    return MASK


def _url(url: str) -> str:
    shown = _USERINFO.sub(lambda userinfo: _mask_userinfo(userinfo[0]), url)
    return _QUERY_PART.sub(
        lambda part: (
            f"{part['name']}={_masked(part['value'])}" if _SECRET_WORD.search(part["name"]) else part[0]
        ),
        shown,
    )


def _mask_userinfo(userinfo: str) -> str:
    return userinfo if _ONLY_REFERENCES.fullmatch(userinfo[:-1]) else MASK + "@"
