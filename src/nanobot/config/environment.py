"""The session environment: what `${NAME}` is looked up in, and the variables a configuration declares."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nanobot.config.diagnostics import Diagnostics
from nanobot.config.documents import read_text
from nanobot.config.expand import find_variable
from nanobot.config.model import EnvVar
from nanobot.config.places import Origin

DEFAULT_ENV_FILE = "nanobot.env"
BEARER_TOKEN = "http:bearer-token"

_ESCAPE = re.compile(r"\\([n\"\\])")
_COMMAND_LINE = Origin("(command line)", 1)


def session_environment(
    process: Mapping[str, str],
    *,
    cwd: Path,
    env_file: str | None,
    assignments: Sequence[str],
    empty: bool,
    found: Diagnostics,
) -> dict[str, str]:
    """The process environment (not if `empty`), the env file, then `assignments`; each overrides the former.

    `assignments` are `NAME=value`, or `NAME` to take it from the process. `env_file` None is the default
    file, which may be missing.
    """
    env = {} if empty else dict(process)
    env["PWD"] = env["CWD"] = str(cwd)
    name = DEFAULT_ENV_FILE if env_file is None else env_file
    path = cwd / Path(name).expanduser()
    if env_file is not None or os.path.isfile(path):
        found.source(name)
        env |= parse_env_file(read_text(path, name, found) or "", name, found)
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not key.strip():
            found.add("error", "bad-value", _COMMAND_LINE, "`-e` takes NAME=value or NAME.")
        elif equals:
            env[key] = value
        elif key in process:
            env[key] = process[key]
        else:
            found.add(
                "warning",
                "unset-variable",
                _COMMAND_LINE,
                f"`-e {key}`: the variable is not set; it is skipped.",
            )
    env.setdefault("NANOBOT_MCP", "true")
    return env


def parse_env_file(text: str, source: str, found: Diagnostics) -> dict[str, str]:
    """`NAME=value` lines; blank ones and `#` comments do not count, `export ` in front does not matter.

    One pair of quotes around a value is removed; in double quotes `\\n`, `\\"` and `\\\\` are escapes.
    """
    values: dict[str, str] = {}
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        key, equals, value = stripped.removeprefix("export ").partition("=")
        if equals and key.strip():
            values[key.strip()] = _unquoted(value)
        else:
            found.add(
                "warning", "syntax", Origin(source, number), "This line is not NAME=value; it is skipped."
            )
    return values


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        inner = value[1:-1]
        if value[0] == "'":
            return inner
        return _ESCAPE.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], inner)
    return value


@dataclass(frozen=True, slots=True)
class Resolved:
    """`values` are what the definitions add to the environment; the rest is in order of declaration."""

    values: Mapping[str, str]
    missing: tuple[EnvVar, ...]
    invalid: tuple[EnvVar, ...]


def resolve_variables(definitions: Mapping[str, EnvVar], env: Mapping[str, str]) -> Resolved:
    """Look every declared variable up in `env`; all that are missing or not among their options are told."""
    values: dict[str, str] = {}
    missing: list[EnvVar] = []
    invalid: list[EnvVar] = []
    for name, definition in definitions.items():
        value = find_variable(name, env)
        if value is None and definition.use_bearer_token:
            value = env.get(BEARER_TOKEN) or None
        if value is None and definition.optional:
            value = definition.default
        if not value and not definition.optional:
            missing.append(definition)
        elif value and definition.options and value not in definition.options:
            invalid.append(definition)
        elif value is not None:
            values[name] = value
    return Resolved(values, tuple(missing), tuple(invalid))
