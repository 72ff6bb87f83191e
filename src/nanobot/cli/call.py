"""`nanobot call`: one tool or one agent, once."""

from __future__ import annotations

import base64
import json
import mimetypes
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from nanobot.cli.main import EXIT_FAILURE
from nanobot.cli.options import ConfigChoice, config_options
from nanobot.errors import NotFound, UsageError

if TYPE_CHECKING:
    from nanobot.app import App
    from nanobot.config.model import Config
    from nanobot.hub.published import Published


MAX_INPUT = 32 * 1024 * 1024


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-o", "--output", type=click.Choice(["pretty", "json"]), default="pretty", show_default=True)
@click.option("-f", "--file", "file", metavar="FILE", help="Read the input from FILE (`-`: standard input).")
@click.argument("target")
@click.argument("inputs", nargs=-1, metavar="[INPUT]...", type=click.UNPROCESSED)
@config_options
def command(choice: ConfigChoice, output: str, file: str | None, target: str, inputs: tuple[str, ...]) -> int:
    """Call one tool or agent and print the answer.

    TARGET is an agent, a `server/tool`, or a tool that only one server has. A tool takes one JSON object or
    `--key=value` pairs; an agent takes the words as its prompt. Options of this command stand before TARGET.
    """
    import anyio

    if file is not None and inputs:
        raise UsageError("Give the input either with --file or as words, not both.")
    if file is not None:
        inputs = (_read_input(file),)
    config = choice.load()
    if target in config.agents and not "".join(inputs).strip():
        raise UsageError(f"Say something to the agent {target!r}: the words after its name are the message.")
    return anyio.run(_call, config, target, inputs, output)


def _read_input(file: str) -> str:
    try:
        source = sys.stdin.fileno() if file == "-" and sys.stdin is not None else file
        with open(source, "rb") as stream:
            data = stream.read(MAX_INPUT + 1)
        if len(data) > MAX_INPUT:
            raise UsageError(f"The input {file!r} is larger than {MAX_INPUT // 1024 // 1024} MiB.")
        return data.decode()
    except OSError as e:
        raise UsageError(f"The input {file!r} cannot be read: {e.strerror}.") from e
    except UnicodeDecodeError as e:
        raise UsageError(f"The input {file!r} is not UTF-8 text.") from e


async def _call(config: Config, target: str, inputs: tuple[str, ...], output: str) -> int:
    from nanobot.app import open_app

    async with open_app(config) as app:
        if target in config.agents:
            app.models.choose(config.agents[target])
            result = await _ask_agent(app, target, inputs)
        else:
            result = await _call_tool(app, target, inputs)
    if output == "json":
        click.echo(json.dumps(result, ensure_ascii=False, indent=2))
    else:
        _print(result)
    return EXIT_FAILURE if result.get("isError") else 0


async def _ask_agent(app: App, agent: str, inputs: tuple[str, ...]) -> dict[str, Any]:
    from nanobot.agent.engine import Input
    from nanobot.llm.messages import Content

    answer = await app.engine.once(agent, Input(text=" ".join(inputs)))
    content: list[dict[str, Any]] = []
    if answer.message is not None and answer.message.text:
        content.append({"type": "text", "text": answer.message.text})
        content += [i.body for i in answer.message.items if isinstance(i, Content)]
    result: dict[str, Any] = {
        "content": content or [{"type": "text", "text": answer.error or "[NO CONTENT]"}]
    }
    if answer.structured is not None:
        result["structuredContent"] = answer.structured
    if answer.stop != "completed":
        result["isError"] = True
    return result


async def _call_tool(app: App, target: str, inputs: tuple[str, ...]) -> dict[str, Any]:
    from nanobot.wire.call import Call
    from nanobot.wire.rpc import Payload

    tool = await _find_tool(app, target)
    arguments = Payload.of(read_arguments(inputs, tool.definition.object().get("inputSchema") or {}))
    try:
        arguments.raw  # noqa: B018
    except UnicodeEncodeError as e:
        raise UsageError("The arguments are not valid UTF-8.") from e
    return (await app.hub.call(tool, arguments, Call())).object()


async def _find_tool(app: App, target: str) -> Published:
    from nanobot.config.places import Reference

    server, slash, name = target.partition("/")
    if slash:
        if server not in app.hub.names():
            raise NotFound(f"There is no server {server!r}; known: {', '.join(sorted(app.hub.names()))}.")
        listing = await app.hub.tools([Reference(server)])
        owners = [t for t in listing.items if t.name == name]
    else:
        name = target
        listing = await app.hub.tools([Reference(s) for s in app.hub.names()])
        owners = [t for t in listing.items if t.name == name]
    if len(owners) == 1:
        return owners[0]
    if owners:
        places = ", ".join(f"{t.server}/{name}" for t in owners)
        raise UsageError(f"Several servers have a tool {name!r}; say which: {places}.")
    missing = "".join(f" ({m.server} is not available: {m.message})" for m in listing.missing)
    raise NotFound(f"There is no agent or tool {target!r}; `nanobot targets` lists all.{missing}")


def read_arguments(inputs: tuple[str, ...], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Tool arguments from one JSON object, or from `--key=value` and `--key value` words.

    Words are converted to the type the schema gives the key; a repeated key makes a list where the schema
    says array. Raises `UsageError` naming the word.
    """
    if len(inputs) == 1 and not inputs[0].startswith("--"):
        try:
            value = json.loads(inputs[0])
        except json.JSONDecodeError as e:
            raise UsageError(f"The arguments are neither a JSON object nor --key=value pairs: {e}.") from e
        if not isinstance(value, dict):
            raise UsageError("The arguments must be one JSON object.")
        return cast("dict[str, Any]", value)
    properties: Mapping[str, Any] = schema.get("properties") or {}
    arguments: dict[str, Any] = {}
    words = iter(inputs)
    for word in words:
        if not word.startswith("--"):
            raise UsageError(f"{word!r} is no --key=value pair; JSON and pairs cannot be mixed.")
        key, equals, text = word[2:].partition("=")
        if not equals:
            text = _next_word(words, key)
        kind: Any = properties.get(key, {}).get("type")
        if kind == "array":
            item: Any = properties[key].get("items", {}).get("type")
            arguments.setdefault(key, []).append(_typed(key, text, item))
        else:
            arguments[key] = _typed(key, text, kind)
    return arguments


def _next_word(words: Iterable[str], key: str) -> str:
    for word in words:
        return word
    raise UsageError(f"--{key} needs a value.")


def _typed(key: str, text: str, kind: Any) -> Any:
    try:
        match kind:
            case "integer":
                return int(text)
            case "number":
                return float(text)
            case "boolean":
                return {"true": True, "false": False}[text.lower()]
            case "object" | "array":
                return json.loads(text)
            case _:
                return text
    except (ValueError, KeyError) as e:
        raise UsageError(f"--{key} must be of type {kind}, but is {text!r}.") from e


def _print(result: Mapping[str, Any]) -> None:
    """Text on stdout; media into files of the current directory, named on stdout."""
    from nanobot.cli.text import block_text, visible

    for block in result.get("content") or ():
        data = block.get("data") or block.get("resource", {}).get("blob")
        if data:
            mime = block.get("mimeType") or block.get("resource", {}).get("mimeType") or ""
            click.echo(f"[{block['type']} written to {_save(data, mime)}]")
        else:
            text = block_text(block)
            click.echo(visible(text) if sys.stdout.isatty() else text)


def _save(data: str, mime: str) -> str:
    suffix = mimetypes.guess_extension(mime) or ".bin"
    content = base64.b64decode(data)
    number = 1
    while True:
        path = Path(f"output{number}{suffix}")
        try:
            with path.open("xb") as file:
                file.write(content)
        except FileExistsError:
            number += 1
        else:
            return str(path)
