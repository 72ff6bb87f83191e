"""Whether the variables that a configuration declares are there for a caller, before a session begins."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

from nanobot.config.environment import Resolved, resolve_variables
from nanobot.config.model import EnvVar
from nanobot.wire.call import Caller
from nanobot.wire.rpc import INVALID_PARAMS, Payload, RpcError


def check_variables(declared: Mapping[str, EnvVar], env: Mapping[str, str], caller: Caller) -> None:
    """Raise `RpcError` (-32602) that tells every variable which is missing or has none of its options.

    `env` is ours; what the caller brought along comes first.
    """
    resolved = resolve_variables(declared, ChainMap(dict(caller.values), dict(env)))
    if not resolved.missing and not resolved.invalid:
        return
    data: dict[str, Any] = {}
    if resolved.missing:
        data["missingEnv"] = [_wanted(variable) for variable in resolved.missing]
    if resolved.invalid:
        data["invalidEnv"] = [{"name": v.name, "options": list(v.options)} for v in resolved.invalid]
    raise RpcError(INVALID_PARAMS, _sentence(resolved), Payload.of(data))


def _wanted(variable: EnvVar) -> dict[str, Any]:
    wanted: dict[str, Any] = {"name": variable.name, "description": variable.description}
    if variable.default and not variable.sensitive:
        wanted["default"] = variable.default
    if variable.options:
        wanted["options"] = list(variable.options)
    return wanted


def _sentence(resolved: Resolved) -> str:
    parts: list[str] = []
    if resolved.missing:
        parts.append(f"these variables must be set: {', '.join(v.name for v in resolved.missing)}")
    if resolved.invalid:
        parts.append(f"these have a value that is not allowed: {', '.join(v.name for v in resolved.invalid)}")
    return "; ".join(parts)
