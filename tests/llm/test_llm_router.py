"""Which model an agent gets, and the one sentence it gets instead."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from tests.llm.dialects import request, said

from nanobot.config.builtin import KNOWN_PROVIDERS
from nanobot.config.model import Agent, Config, LlmProvider
from nanobot.errors import ConfigError
from nanobot.http import Http, open_http
from nanobot.llm.registry import DEFAULT_MODELS, PROVIDERS, find_known
from nanobot.llm.router import Chosen, Models, split
from nanobot.llm.scripted import ScriptedModel, says
from nanobot.testing.model_server import Reply, model_server

pytestmark = pytest.mark.anyio
KEYS = {"OPENAI_API_KEY": "sk-openai", "ANTHROPIC_API_KEY": "sk-anthropic"}


@pytest.fixture
async def http() -> AsyncGenerator[Http]:
    async with open_http() as client:
        yield client


def config(env: dict[str, str] | None = None, **more: Any) -> Config:
    return Config(home=Path("/nowhere"), env={"NANOBOT_LOCAL_MODELS": "off", **(env or {})}, **more)


def agent(model: str = "", **more: Any) -> Agent:
    return Agent(id="a", model=model, **more)


def provider(name: str, **more: Any) -> dict[str, LlmProvider]:
    return {name: LlmProvider(name=name, dialect=more.pop("dialect", "OpenAIChatCompletions"), **more)}


def names(chosen: Chosen) -> tuple[str, str]:
    return chosen.provider, chosen.name


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("openai/gpt-4.1", ("openai", "gpt-4.1")),
        ("openai/acme/m7", ("openai", "acme/m7")),
        ("claude-x", ("anthropic", "claude-x")),
        ("m7", ("openai", "m7")),
        ("gw/small-1", ("gw", "small-1")),
        ("lm-studio/qwen", ("lm_studio", "qwen")),
        ("llama-cpp/qwen", ("llama_cpp", "qwen")),
        ("Ollama/llama3:8b", ("ollama", "llama3:8b")),
        ("demo", ("demo", "demo")),
        ("demo/anything", ("demo", "demo")),
        ("", ("gw", "big")),
        ("default", ("gw", "big")),
        ("mini", ("anthropic", "claude-x")),
        ("${CHOICE}", ("openai", "chosen")),
    ],
)
async def test_a_model_string_names_a_provider_and_its_model(
    http: Http, model: str, expected: tuple[str, str]
) -> None:
    models = Models(
        config(
            {**KEYS, "CHOICE": "openai/chosen"},
            llm_providers=provider("gw", base_url="http://gw.test/v1"),
            default_model="gw/big",
            default_mini_model="anthropic/claude-x",
        ),
        http,
    )
    assert names(models.choose(agent(model))) == expected


async def test_the_environment_names_the_default_before_the_configuration(http: Http) -> None:
    env = {**KEYS, "NANOBOT_DEFAULT_MODEL": " claude-y ", "NANOBOT_DEFAULT_MINI_MODEL": "m8"}
    models = Models(config(env, default_model="m7", default_mini_model="m7"), http)
    assert names(models.choose(agent())) == ("anthropic", "claude-y")
    assert names(models.choose(agent("mini"))) == ("openai", "m8")


@pytest.mark.parametrize(
    ("model", "variable"),
    [("gpt-4.1", "OPENAI_API_KEY"), ("claude-x", "ANTHROPIC_API_KEY"), ("groq/x", "GROQ_API_KEY")],
)
async def test_a_named_model_without_its_key_is_an_error_that_says_what_to_do(
    http: Http, model: str, variable: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        Models(config(), http).choose(agent(model))
    assert variable in str(refused.value)
    assert "demo" in str(refused.value)


async def test_a_configured_key_that_is_not_set_is_named(http: Http) -> None:
    configured = provider("gw", base_url="http://gw.test", api_key="${GW_KEY}")
    with pytest.raises(ConfigError, match="GW_KEY"):
        Models(config(llm_providers=configured), http).choose(agent("gw/m"))


async def test_an_unknown_provider_is_named(http: Http) -> None:
    with pytest.raises(ConfigError, match="nosuch"):
        Models(config(), http).choose(agent("nosuch/m"))


async def test_a_provider_without_a_model_is_an_error(http: Http) -> None:
    with pytest.raises(ConfigError, match="no model"):
        Models(config(KEYS), http).choose(agent("openai/"))


async def test_a_provider_without_an_address_is_an_error(http: Http) -> None:
    with pytest.raises(ConfigError, match="baseURL"):
        Models(config(), http).choose(agent("custom/m"))


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, "demo"),
        (KEYS, "openai/gpt-4.1"),
        ({"ANTHROPIC_API_KEY": "k"}, f"anthropic/{DEFAULT_MODELS['anthropic']}"),
        ({"HF_TOKEN": "k"}, "demo"),
        ({"OPENAI_API_KEY": " "}, "demo"),
    ],
)
async def test_without_a_model_the_first_key_decides(http: Http, env: dict[str, str], expected: str) -> None:
    models = Models(config(env), http)
    await models.start()
    assert models.default() == expected


async def test_without_a_key_a_model_server_of_this_machine_is_used(http: Http) -> None:
    async with model_server(Reply(text="local"), models=["embed-1", "llama3"]) as server:
        env = {"NANOBOT_LOCAL_MODELS": f"http://127.0.0.1:9/v1, {server.url}"}
        models = Models(config(env), http)
        await models.start()
        chosen = models.choose(agent())
        answer = await chosen.model.respond(request(model=chosen.name), lambda _: None)
        assert chosen.name == "llama3"
        assert said(answer) == "local"
        assert "authorization" not in server.requests[0].headers

        avoiding = Models(config(env), http)
        await avoiding.start(avoid_ports=[server.port])
        assert avoiding.default() == "demo"


async def test_a_key_goes_to_the_configured_address_and_headers_win(http: Http) -> None:
    async with model_server() as server:
        configured = provider(
            "openai",
            dialect="OpenAIResponses",
            base_url="${GATEWAY}/",
            headers={"X-Team": "${TEAM}", "authorization": "Token own"},
        )
        env = {**KEYS, "GATEWAY": server.url, "TEAM": "blue"}
        chosen = Models(config(env, llm_providers=configured), http).choose(agent("openai/m"))
        await chosen.model.respond(request(model=chosen.name, thread="t"), lambda _: None)
        received = server.requests[0]
    assert received.headers["authorization"] == "Token own"
    assert received.headers["x-team"] == "blue"
    assert "prompt_cache_key" not in received.json
    assert chosen.scope == f"openai|{server.url}|m"


@pytest.mark.parametrize("suffix", ["", "/v1", "/v1/"])
async def test_an_anthropic_address_may_end_in_its_version_or_not(http: Http, suffix: str) -> None:
    async with model_server() as server:
        base = server.url.removesuffix("/v1") + suffix
        models = Models(config({"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": base}), http)
        chosen = models.choose(agent("claude-x"))
        await chosen.model.respond(request(model=chosen.name), lambda _: None)
        assert server.requests[0].path == "/v1/messages"


async def test_a_fallback_answers_and_one_that_cannot_be_used_is_left_out(http: Http) -> None:
    async with model_server(Reply(text="second")) as server:
        server.queue(Reply(status=401))
        configured = provider("one", base_url=server.url) | provider("two", base_url=server.url)
        models = Models(config(llm_providers=configured), http)
        chosen = models.choose(agent("one/a", fallbacks=("claude-x", "two/b")))
        answer = await chosen.model.respond(request(model=chosen.name), lambda _: None)
        assert said(answer) == "second"
        assert [r.json["model"] for r in server.requests] == ["a", "b"]


async def test_one_choice_is_made_once(http: Http) -> None:
    models = Models(config(KEYS), http)
    assert models.choose(agent("m7")) is models.choose(agent("m7"))


async def test_a_script_can_stand_in(http: Http, tmp_path: Path) -> None:
    with ScriptedModel([says("from the test")]) as script:
        chosen = Models(config(), http, scripted=script).choose(agent("scripted"))
        assert said(await chosen.model.respond(request(), lambda _: None)) == "from the test"

    file = tmp_path / "script.json"
    file.write_text(json.dumps([{"calls": [{"name": "t", "arguments": {"a": 1}}]}, {"says": "done"}]))
    chosen = Models(config({"NANOBOT_SCRIPT": str(file)}), http).choose(agent("scripted"))
    assert (await chosen.model.respond(request(), lambda _: None)).finish == "tool_calls"

    file.write_text('[{"say": 1}]')
    with pytest.raises(ConfigError, match="list of steps"):
        Models(config(), http).choose(agent(f"scripted/{file}"))
    with pytest.raises(ConfigError, match="NANOBOT_SCRIPT"):
        Models(config(), http).choose(agent("scripted"))


def test_the_configuration_knows_the_providers_of_the_table() -> None:
    assert set(KNOWN_PROVIDERS) == set(PROVIDERS)
    assert {name: known.dialect for name, known in PROVIDERS.items()} == dict(KNOWN_PROVIDERS)


def test_the_table_is_consistent() -> None:
    for name, known in PROVIDERS.items():
        assert find_known(name.replace("_", "-")) == name
        assert not known.base_url.endswith("/")
        assert known.base_url.startswith("https://") or known.local or not known.base_url
    assert set(DEFAULT_MODELS) <= set(PROVIDERS)
    assert split("claude") == ("anthropic", "claude")


def test_choosing_models_loads_no_vendor_library_and_no_http_client() -> None:
    code = "import sys, nanobot.llm.router; print(' '.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    unwanted = {"openai", "anthropic", "aiohttp", "pydantic", "sqlalchemy", "mcp", "ruamel"}
    assert not unwanted & {name.partition(".")[0] for name in run.stdout.split()}
