"""`nanobot policy`: what the rules of an agent say about a call, without making it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import click

from nanobot.cli.options import ConfigChoice, config_options

if TYPE_CHECKING:
    from nanobot.config.model import Agent
    from nanobot.config.places import Reference


@click.group(name="policy")
def policy() -> None:
    """Explain which calls run, which are asked about, and why."""


command = policy


@policy.command()
@click.argument("agent_id", metavar="AGENT")
@click.argument("tool")
@click.argument("arguments", default="{}")
@click.option("--json", "as_json", is_flag=True, help="Print the decision as JSON.")
@config_options
def explain(choice: ConfigChoice, agent_id: str, tool: str, arguments: str, as_json: bool) -> None:
    """Say what would become of a call of TOOL by AGENT with ARGUMENTS, a JSON object. Nothing is run.

    TOOL is written as in a rule: a built-in tool, `server/tool`, or an agent. Relative paths count from the
    current directory.
    """
    from pathlib import Path

    from nanobot.agent.approval.decision import Called, Decision, decide
    from nanobot.config.builtin import SYSTEM
    from nanobot.config.permissions import permits_tool

    config = choice.load()
    one = config.agents.get(agent_id)
    if one is None:
        raise click.UsageError(f"There is no agent {agent_id!r}; known: {', '.join(config.agents)}.")
    target = _target(tool, one)
    called = Called(
        server=target.server, tool=target.tool or "", arguments=_object(arguments), folder=Path.cwd()
    )
    if target.server == SYSTEM and not permits_tool(one, called.tool):
        reason = f"The permissions of agent {agent_id!r} do not grant it; it is not offered at all."
        decision = Decision(verdict="refuse", rule=None, reason=reason)
    else:
        decision = decide([one.tool_approvals], called)
    if as_json:
        rule = str(decision.rule.origin) if decision.rule else None
        shown = {"verdict": decision.verdict, "rule": rule, "reason": decision.reason}
        click.echo(json.dumps(shown, ensure_ascii=False))
    else:
        click.echo(f"{decision.verdict}: {decision.reason}")


def _target(tool: str, agent: Agent) -> Reference:
    from nanobot.config.builtin import SYSTEM, SYSTEM_TOOLS
    from nanobot.config.places import Reference

    server, _, name = tool.partition("/")
    if not name and (own := SYSTEM_TOOLS.get(server.lower())):
        return Reference(SYSTEM, own)
    if not name and server not in (*agent.agents, *(one.server for one in agent.tools if not one.tool)):
        raise click.UsageError(
            f"{tool!r} is neither a built-in tool nor an agent that {agent.id!r} can ask. "
            "Write `server/tool` for a tool of a server."
        )
    return Reference(server, name or None)


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as e:
        raise click.UsageError(f"ARGUMENTS is not JSON: {e}.") from None
    if not isinstance(value, dict):
        raise click.UsageError('ARGUMENTS must be a JSON object, for example \'{"command": "ls"}\'.')
    return cast("dict[str, Any]", value)
