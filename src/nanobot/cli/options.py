"""Options that many commands share: which configuration to use."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from nanobot.config.load import Selection
    from nanobot.config.model import Config

DEBUG = "NANOBOT_DEBUG"
EVERYTHING = "messages,progress,ui"
_ON = ("1", "true", "yes", "on")


def text(value: str) -> str:
    """A parameter type: text that can be stored. What Python could not read as UTF-8 is refused."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise click.BadParameter(f"{value!r} is not valid UTF-8.") from None
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChoice:
    """What the command line says about the configuration."""

    sources: tuple[str, ...]
    set_env: tuple[str, ...]
    env_file: str | None
    empty_env: bool
    profiles: tuple[str, ...]
    agent: str | None
    exclude_built_in_agents: bool
    default_model: str | None
    default_mini_model: str | None
    debug: bool
    overrides: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """A document that other options of the command stand for; it is merged last."""

    def selection(self, *, strict: bool = False) -> Selection:
        """The same for the loader, with what the process adds: its environment and directory."""
        from nanobot.config.load import Selection

        return Selection(
            sources=self.sources,
            env=os.environ,
            cwd=Path.cwd(),
            env_file=self.env_file,
            set_env=self.set_env,
            empty_env=self.empty_env,
            profiles=self.profiles,
            agent=self.agent,
            builtin_agents=not self.exclude_built_in_agents,
            default_model=self.default_model,
            default_mini_model=self.default_mini_model,
            strict=strict,
            overrides=self.overrides,
        )

    def load(self) -> Config:
        """Read and check it. Raises `ConfigError`."""
        from nanobot.config.load import load_config

        return load_config(self.selection())


def logging_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--debug` and `--trace`. The variable of the first also says which messages to log."""
    with_trace = click.option(
        "--trace", is_flag=True, help="Log the messages of clients and MCP servers, without secrets."
    )
    with_debug = click.option("--debug", is_flag=True, allow_from_autoenv=False, help="Log more, to stderr.")
    return with_debug(with_trace(command))


def config_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command gets them as one argument `choice`."""

    @click.option(
        "-c", "--config", "sources", multiple=True, metavar="PATH",
        help="Configuration file or directory, beginning with `.`, `/` or `~`; may be repeated.",
    )  # fmt: skip
    @click.option(
        "-e", "--env", "set_env", multiple=True, metavar="KEY[=VALUE]",
        help="Set a variable, or pass one on from the environment.",
    )  # fmt: skip
    @click.option(
        "--env-file", metavar="PATH", envvar="NANOBOT_ENV_FILE",
        help="File of KEY=VALUE lines (default ./nanobot.env).",
    )  # fmt: skip
    @click.option(
        "--empty-env", is_flag=True, envvar="NANOBOT_EMPTY_ENV",
        help="Do not take variables from the environment.",
    )  # fmt: skip
    @click.option(
        "--profile", "profiles", multiple=True, metavar="NAME", envvar="NANOBOT_PROFILE",
        help="Merge this profile in.",
    )  # fmt: skip
    @click.option("--agent", metavar="ID", envvar="NANOBOT_AGENT", help="Make this agent the default one.")
    @click.option(
        "--exclude-built-in-agents", is_flag=True, envvar="NANOBOT_EXCLUDE_BUILT_IN_AGENTS",
        help="Leave out the agent `nanobot`.",
    )  # fmt: skip
    @click.option(
        "--default-model", metavar="MODEL", envvar="NANOBOT_DEFAULT_MODEL",
        help="Model of agents that name none, e.g. openai/gpt-4.1 or demo.",
    )  # fmt: skip
    @click.option(
        "--default-mini-model", metavar="MODEL", envvar="NANOBOT_DEFAULT_MINI_MODEL",
        help="Model for small tasks, where none is named.",
    )  # fmt: skip
    @click.option(
        "-C", "--chdir", metavar="DIR", envvar="NANOBOT_CHDIR", help="Work in this directory.",
        type=click.Path(exists=True, file_okay=False),
    )  # fmt: skip
    @logging_options
    @functools.wraps(command)
    def with_choice(*args: Any, chdir: str | None, debug: bool, trace: bool, **options: Any) -> Any:
        from nanobot import logs

        if chdir:
            os.chdir(chdir)
        before = click.get_current_context().find_root().params  # `nanobot --debug COMMAND` means the same
        debug = debug or before.get("debug", False) or os.environ.get(DEBUG, "").lower() in _ON
        if trace or before.get("trace", False):
            options["set_env"] = (f"{DEBUG}={EVERYTHING}", *options["set_env"])
        logs.set_up(level="DEBUG" if debug else "WARNING")
        names = {f.name for f in fields(ConfigChoice)} - {"debug", "overrides"}
        choice = ConfigChoice(debug=debug, **{name: options.pop(name) for name in names})
        return command(*args, choice=choice, **options)

    return with_choice
