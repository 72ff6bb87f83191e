"""nanobot itself with an in-process echo tool, or relaying those of an MCP server. PORT [UPSTREAM]"""

import sys
import tempfile
from pathlib import Path

import anyio

from nanobot.app import open_app
from nanobot.builtin.server import BuiltinServer, BuiltinTool
from nanobot.config.load import Selection, load_config
from nanobot.server.serve import serve

PORT = int(sys.argv[1])
UPSTREAM = sys.argv[2] if len(sys.argv) > 2 else ""


async def echo(arguments, call):
    return arguments["text"]


ECHO = BuiltinTool(
    name="echo",
    description="Give back the text.",
    schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    run=echo,
)


async def main(home: Path) -> None:
    document = home / "nanobot.yaml"
    entry = f"url: {UPSTREAM}, protocol: legacy" if UPSTREAM else "url: http://127.0.0.1:9/unused"
    document.write_text(f"publish: {{mcpServers: bench}}\nmcpServers: {{bench: {{{entry}}}}}\n")
    selection = Selection(
        sources=[str(document)], env={"PATH": "/usr/bin"}, cwd=home, home=home, default_model="demo"
    )
    config = load_config(selection)
    extra = {} if UPSTREAM else {"bench": BuiltinServer("bench", [ECHO])}
    async with open_app(config, extra_sources=extra) as app:
        await serve(app, host="127.0.0.1", port=PORT)


with tempfile.TemporaryDirectory() as home:
    anyio.run(main, Path(home), backend_options={"use_uvloop": True})
