"""`nanobot models`: what can be used now, and what is used where none is named."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import anyio.to_thread
import pytest
import yaml
from tests.peers.programs import free_port, nanobot

from nanobot.testing.model_server import model_server

pytestmark = pytest.mark.anyio
OFF = {"NANOBOT_LOCAL_MODELS": "off"}


async def models(home: Path, *args: str, **env: str) -> CompletedProcess[str]:
    return await anyio.to_thread.run_sync(partial(nanobot, "models", *args, home=home, cwd=home, **env))


def names(document: dict[str, Any]) -> list[str]:
    return [model["model"] for model in document["models"]]


async def test_without_anything_there_is_the_demo(tmp_path: Path) -> None:
    ran = await models(tmp_path, **OFF)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == (
        "Default: demo. None is named, no provider has a key, and no model server of this machine answers.\n"
        "\n"
        "MODEL  FROM\n"
        "demo   nanobot, offline\n"
    )


async def test_a_provider_with_a_key_is_asked_and_goes_before_a_server_of_this_machine(
    tmp_path: Path,
) -> None:
    async with (
        model_server(models=["gpt-b", "gpt-a", "text-embed"]) as far,
        model_server(models=["m"]) as near,
    ):
        env = {"OPENAI_API_KEY": "sk-CANARY", "OPENAI_BASE_URL": far.url, "NANOBOT_LOCAL_MODELS": near.url}
        ran = await models(tmp_path, "-o", "json", **env)
        told = json.loads(ran.stdout)
        table = await models(tmp_path, **env)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert told["default"] == {"model": "openai/gpt-4.1", "why": "key"}
    assert told["models"][0] == {"model": "openai/gpt-a", "provider": "openai", "source": "key"}
    assert names(told) == ["openai/gpt-a", "openai/gpt-b", "demo"]
    assert "Default: openai/gpt-4.1. None is named; this provider has a key.\n" in table.stdout
    assert "CANARY" not in ran.stdout + ran.stderr + table.stdout + table.stderr


async def test_the_models_of_a_server_of_this_machine(tmp_path: Path) -> None:
    async with model_server(models=["llama3", "qwen"]) as near:
        ran = await models(tmp_path, "-o", "yaml", NANOBOT_LOCAL_MODELS=near.url)
        told = yaml.safe_load(ran.stdout)
        configured = tmp_path / "nanobot.yaml"
        configured.write_text(f"llmProviders: {{ollama: {{baseURL: '{near.url}'}}}}")
        written = json.loads((await models(tmp_path, "-o", "json", "-c", str(configured), **OFF)).stdout)
    assert told["default"] == {"model": "local/llama3", "why": "local"}
    assert told["models"] == [
        {
            "model": "local/llama3",
            "provider": "local",
            "source": "local",
            "address": f"127.0.0.1:{near.port}",
        },
        {"model": "demo", "provider": "demo", "source": "built-in"},
    ]
    assert written["models"][0] == {"model": "ollama/llama3", "provider": "ollama", "source": "configured"}
    assert written["default"]["model"] == "demo"


async def test_who_does_not_answer_is_a_line_on_stderr(tmp_path: Path) -> None:
    configured = tmp_path / "nanobot.yaml"
    async with model_server(models=["m"]) as server:
        providers = {
            "dead": {"dialect": "OpenAIChatCompletions", "baseURL": f"http://127.0.0.1:{free_port()}/v1"},
            "lost": {"dialect": "OpenAIChatCompletions", "baseURL": f"{server.url}/nowhere?of="},
            "keyless": {"dialect": "OpenAIChatCompletions", "baseURL": server.url, "apiKey": "${GW_KEY}"},
            "good": {"dialect": "AnthropicMessages", "baseURL": server.url},
        }
        configured.write_text(json.dumps({"llmProviders": providers}))
        ran = await models(tmp_path, "-o", "json", "-c", str(configured), **OFF)
    assert ran.returncode == 0
    assert names(json.loads(ran.stdout)) == ["good/m", "demo"]
    lines = {line.partition(": ")[0]: line for line in ran.stderr.splitlines()}
    assert set(lines) == {"dead", "keyless", "lost"}
    assert "GW_KEY" in lines["keyless"]


async def test_a_named_default_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    ran = await models(tmp_path, "-o", "json", "--default-model", "openai/gpt-4.1", **OFF)
    assert json.loads(ran.stdout)["default"] == {"model": "openai/gpt-4.1", "why": "named"}
    assert "The default model cannot be used: " in ran.stderr
    assert "OPENAI_API_KEY" in ran.stderr
