"""From what a command line says to one frozen `Config`: the way through all of this package."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nanobot.config.build import build
from nanobot.config.diagnostics import Diagnostic, Diagnostics, InvalidConfig
from nanobot.config.environment import Resolved, resolve_variables, session_environment
from nanobot.config.model import Config
from nanobot.config.nodes import places, plain
from nanobot.config.places import Origin
from nanobot.config.sources import SETTINGS_FILE, Composer, Source

log = logging.getLogger(__name__)

HOME_NAME = ".nanobot"

_UNREADABLE = frozenset({"syntax", "source-error", "no-config", "bad-extends", "extends-cycle"})
_ABOUT_ABSENCE = frozenset(
    {
        "unknown-server",
        "unknown-agent",
        "unknown-provider",
        "unknown-profile",
        "no-entrypoint",
        "no-default-agent",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a command line says about configuration.

    `sources` are files and directories, each possibly several with commas between; none of them: the
    variable NANOBOT_CONFIG, else the home. `home` None: NANOBOT_HOME, else the first source's directory,
    else `.nanobot` here if it exists, else `.nanobot` in the person's home directory.
    """

    sources: Sequence[str] = ()
    env: Mapping[str, str]
    cwd: Path
    home: Path | None = None
    env_file: str | None = None
    set_env: Sequence[str] = ()
    empty_env: bool = False
    agent: str | None = None
    default_model: str | None = None
    default_mini_model: str | None = None
    profiles: Sequence[str] = ()
    builtin_agents: bool = True
    strict: bool = False
    overrides: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """A document that the command line makes up, merged last of all."""


@dataclass(frozen=True, slots=True)
class Examined:
    """`config` is None if there was an error among `diagnostics`."""

    config: Config | None
    diagnostics: tuple[Diagnostic, ...]


def load_config(selection: Selection) -> Config:
    """The configuration of one process. `InvalidConfig` tells all that is wrong; warnings are logged."""
    examined = examine(selection)
    if examined.config is None:
        raise InvalidConfig(examined.diagnostics)
    for diagnostic in examined.diagnostics:
        log.log(logging.WARNING if diagnostic.severity == "warning" else logging.INFO, "%s", diagnostic)
    return examined.config


def examine(selection: Selection) -> Examined:
    """Read and check everything without starting anything."""
    found = Diagnostics()
    home, sources = _where(selection, found)
    composer = Composer(found, _split(selection.profiles))
    composed = composer.compose(sources, home / SETTINGS_FILE, selection.overrides)
    env = session_environment(
        selection.env,
        cwd=selection.cwd,
        env_file=selection.env_file,
        assignments=selection.set_env,
        empty=selection.empty_env,
        found=found,
    )
    built = build(composed, found, builtin_agents=selection.builtin_agents, agent=selection.agent)
    resolved = resolve_variables(built.env_vars, env)
    if not found.has_errors:  # else what is declared may be a slip as well
        _tell_unset(resolved, found)
    diagnostics = _without_consequences(found.sorted(strict=selection.strict))
    if any(diagnostic.severity == "error" for diagnostic in diagnostics):
        return Examined(None, diagnostics)
    config = Config(
        home=home,
        sources=tuple(source.label for source in sources),
        agents=built.agents,
        mcp_servers=built.mcp_servers,
        llm_providers=built.llm_providers,
        prompts=built.prompts,
        publish=built.publish,
        env_vars=built.env_vars,
        server=built.server,
        sessions=built.sessions,
        auth=built.auth,
        hooks=built.hooks,
        hook_settings=built.hook_settings,
        default_model=_model(selection.default_model, "NANOBOT_DEFAULT_MODEL", env),
        default_mini_model=_model(selection.default_mini_model, "NANOBOT_DEFAULT_MINI_MODEL", env),
        env=MappingProxyType(env | dict(resolved.values)),
        origins=MappingProxyType(dict(places(built.document))),
        document=MappingProxyType(plain(built.document)),
    )
    return Examined(config, diagnostics)


def _tell_unset(resolved: Resolved, found: Diagnostics) -> None:
    """Declared variables are for the people who run or use this; without them sessions are refused."""
    for variable in resolved.missing:
        if not variable.use_bearer_token:
            about = f" ({variable.description})" if variable.description else ""
            message = f"The variable {variable.name!r}{about} has no value yet."
            hint = f"set it in the environment, in the env file or with `-e {variable.name}=…`"
            found.add("warning", "unset-variable", variable.origin, message, hint=hint)
    for variable in resolved.invalid:
        options = ", ".join(variable.options)
        message = f"The value of the variable {variable.name!r} is not one of {options}."
        found.add("warning", "bad-value", variable.origin, message)


def _without_consequences(diagnostics: tuple[Diagnostic, ...]) -> tuple[Diagnostic, ...]:
    """Of a document that could not be read, nobody knows what it would have defined."""
    if not any(d.severity == "error" and d.code in _UNREADABLE for d in diagnostics):
        return diagnostics
    return tuple(d for d in diagnostics if d.code not in _ABOUT_ABSENCE)


def _model(given: str | None, variable: str, env: Mapping[str, str]) -> str:
    return (given or env.get(variable, "")).strip()


def _where(selection: Selection, found: Diagnostics) -> tuple[Path, list[Source]]:
    """The home, and what to read."""
    user_home = Path(selection.env["HOME"]) if selection.env.get("HOME") else Path.home()
    explicit_home = _below(selection.cwd, selection.home) or _home_of(
        selection.env.get("NANOBOT_HOME", ""), selection.cwd, user_home
    )
    values = _split(selection.sources) or _split([selection.env.get("NANOBOT_CONFIG", "")])
    sources = [s for value in values if (s := _source(value, selection, user_home, found)) is not None]
    if values:
        local = next((_folder_of(s.path) for s in sources if os.path.exists(s.path)), None)
        return explicit_home or local or _default_home(selection.cwd, user_home), sources
    home = explicit_home or _default_home(selection.cwd, user_home)
    label = HOME_NAME if home == selection.cwd / HOME_NAME else str(home)
    return home, [Source(label, home, may_be_empty=selection.builtin_agents)]


def _below(cwd: Path, home: Path | None) -> Path | None:
    return None if home is None else cwd / home


def _home_of(value: str, cwd: Path, user_home: Path) -> Path | None:
    return cwd / _with_user(value, user_home) if value else None


def _default_home(cwd: Path, user_home: Path) -> Path:
    here = cwd / HOME_NAME
    return here if os.path.isdir(here) else user_home / HOME_NAME


def _folder_of(path: Path) -> Path:
    return path if os.path.isdir(path) else path.parent


def _source(value: str, selection: Selection, user_home: Path, found: Diagnostics) -> Source | None:
    """A local file or directory. Its value begins with `.`, `/` or `~`, so that other kinds can be told."""
    path = selection.cwd / _with_user(value, user_home)
    is_default = Path(value) == Path(HOME_NAME)
    if value.startswith((".", "~")) or Path(value).is_absolute():
        return Source(value, path, may_be_empty=is_default and selection.builtin_agents)
    found.source(value)
    exists = "://" not in value and os.path.exists(path)
    hint = f"write ./{value}" if exists else "local sources begin with `.`, `/` or `~`"
    message = f"{value!r} cannot be read as configuration: only local files and directories can."
    if exists:
        message = f"{value!r} is not taken for a local file: local sources begin with `.`, `/` or `~`."
    found.add("error", "source-error", Origin(value, 1), message, hint=hint)
    return None


def _with_user(value: str, user_home: Path) -> Path:
    return (
        user_home / value[1:].lstrip("/\\")
        if value == "~" or value.startswith(("~/", "~\\"))
        else Path(value)
    )


def _split(values: Sequence[str]) -> list[str]:
    return [part.strip() for value in values for part in value.split(",") if part.strip()]
