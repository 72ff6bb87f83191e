"""What the page on transports shows can be used as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from nanobot.cli.run import command
from nanobot.config.load import Selection, load_config

PAGE = (Path(__file__).parents[2] / "docs" / "transports.md").read_text()


def test_the_document_of_the_page_says_how_each_server_is_reached(tmp_path: Path) -> None:
    (document,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)
    (tmp_path / "nanobot.yaml").write_text(document)
    selection = Selection(sources=("./nanobot.yaml",), env={"HOME": str(tmp_path)}, cwd=tmp_path)
    servers = load_config(selection).mcp_servers
    assert (servers["old"].transport, servers["new"].transport) == ("sse", "streamableHttp")


def test_the_option_of_the_page_exists() -> None:
    (shown,) = re.findall(r"^```sh\nnanobot run (.*?)\n```", PAGE, re.M | re.S)
    assert shown in CliRunner().invoke(command, ["--help"]).output
