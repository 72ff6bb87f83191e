"""The one table of commands: help, completion and documentation are made from it."""

from __future__ import annotations

COMMANDS: dict[str, tuple[str, str]] = {
    "chat": ("nanobot.cli.chat", "Talk to an agent in the terminal."),
    "run": ("nanobot.cli.run", "Serve agents and tools over HTTP or stdio."),
    "call": ("nanobot.cli.call", "Call one tool or agent and print the answer."),
    "targets": ("nanobot.cli.targets", "List what can be called."),
    "sessions": ("nanobot.cli.sessions", "List, show, rename and delete stored conversations."),
    "hooks": ("nanobot.cli.hooks", "Help with writing hooks."),
    "mcp": ("nanobot.cli.mcp", "Log in to MCP servers and out again."),
    "policy": ("nanobot.cli.policy", "Explain which calls run, which are asked about, and why."),
    "proxy": ("nanobot.cli.proxy", "Lead a port of a container to this machine (started by nanobot itself)."),
    "models": ("nanobot.cli.models", "List the models that can be used, and which is used by default."),
    "config": ("nanobot.cli.config", "Check, show and describe the configuration."),
}
"""Every command: the module that holds it (as `command`) and its line in the help."""

ALIASES = {"agent": "chat"}
