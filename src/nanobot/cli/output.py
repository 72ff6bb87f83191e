"""The same answer for people and for programs: `-o table`, `json` or `yaml`."""

from __future__ import annotations

import json
from typing import Any

import click

output_option = click.option(
    "-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True
)


def encoded(value: Any, output: str) -> str:
    """JSON-like `value` as `json` or `yaml`, with a line break at its end."""
    if output == "json":
        return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
    from nanobot.config.yaml_dump import dump_yaml

    return dump_yaml(value)
