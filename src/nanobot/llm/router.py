"""From a model string to a model that answers: names, keys, addresses, and what is wrapped around."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from nanobot.config import builtin
from nanobot.config.expand import expand, expand_or_none
from nanobot.config.model import Agent, Config, LlmProvider
from nanobot.errors import ConfigError
from nanobot.http import Http
from nanobot.llm.anthropic import AnthropicMessages
from nanobot.llm.chat_completions import ChatCompletions
from nanobot.llm.demo import DemoModel
from nanobot.llm.dialect import Dialect
from nanobot.llm.endpoint import Endpoint
from nanobot.llm.fallback import Breaker, Candidate, FallbackModel
from nanobot.llm.idle import idle_reader
from nanobot.llm.local_servers import LocalServer, find_local_servers
from nanobot.llm.model import Model
from nanobot.llm.provider import Provider
from nanobot.llm.registry import DEFAULT_MODELS, PROVIDERS, Known, find_known
from nanobot.llm.responses import Responses
from nanobot.llm.retry import RetryingModel
from nanobot.llm.scripted import ScriptedModel, load_script

log = logging.getLogger(__name__)

SCRIPT: Final = "NANOBOT_SCRIPT"
"""Names the file that a bare `scripted` plays."""
FALLBACK_WAIT_S: Final = 10.0
"""How long a model may be waited for while another one could be asked."""

_DIALECTS: Final[dict[str, Dialect]] = {
    "OpenAIChatCompletions": ChatCompletions(),
    "OpenAIResponses": Responses(),
    "AnthropicMessages": AnthropicMessages(),
}


@dataclass(frozen=True, slots=True)
class Chosen:
    """What an agent gets. `name` goes into `ModelRequest.model`."""

    model: Model
    name: str
    provider: str
    scope: str

    @property
    def label(self) -> str:
        return f"{self.provider}/{self.name}" if self.name != self.provider else self.name


@dataclass(frozen=True, slots=True)
class DefaultModel:
    """The model where none is named, and why: it is `named` for that, its provider has a `key`, it is the
    first of a `local` server, or there is `nothing` else."""

    model: str
    why: Literal["named", "key", "local", "nothing"]


@dataclass(frozen=True, slots=True)
class Reachable:
    """A provider that can be asked, and how."""

    dialect: Dialect
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class Unusable:
    """A provider that is configured and still cannot be asked. `message` says what lacks."""

    provider: str
    message: str


class Models:
    """The models of one installation. What was learned about one is shared by all its users."""

    def __init__(self, config: Config, http: Http, *, scripted: ScriptedModel | None = None) -> None:
        self._config = config
        self._http = http
        self._idle_s = idle_reader(config.env)
        self._script = scripted
        self._local: LocalServer | None = None
        self._providers: dict[str, Model] = {}
        self._scripts: dict[str, ScriptedModel] = {}
        self._breakers: dict[str, Breaker] = {}
        self._chosen: dict[tuple[str, tuple[str, ...]], Chosen] = {}

    async def start(self, *, avoid_ports: Collection[int] = ()) -> None:
        """Look for a model server on this machine, if nothing says which model to use."""
        if not self._named_default() and not self._keyed_default():
            servers = await find_local_servers(self._http, self._config.env, avoid_ports=avoid_ports)
            self._local = servers[0] if servers else None
            self._chosen.clear()
        log.info("default model", extra={"model": self.default()})

    def default(self) -> str:
        """What an agent without `model` gets: `provider/model`, or `demo` when there is nothing else."""
        return self.explained_default().model

    def explained_default(self) -> DefaultModel:
        """The same, and why it is that."""
        if named := self._named_default():
            return DefaultModel(named, "named")
        if keyed := self._keyed_default():
            return DefaultModel(keyed, "key")
        if self._local:
            return DefaultModel(f"{self._local.provider}/{self._local.models[0]}", "local")
        return DefaultModel("demo", "nothing")

    def providers(self) -> Iterator[Reachable | Unusable]:
        """Every provider that has a key, or is configured and needs none; `Unusable` if something lacks."""
        for name in dict.fromkeys((*PROVIDERS, *self._config.llm_providers)):
            configured = self._config.llm_providers.get(name)
            known = PROVIDERS.get(find_known(name) or "", Known())
            is_written = configured is not None and name not in builtin.PROVIDERS
            if not is_written and not self._key(configured, known):
                continue
            try:
                endpoint = self._endpoint(name, "*", configured, known)
            except ConfigError as e:
                yield Unusable(name, str(e))
            else:
                yield Reachable(_DIALECTS[configured.dialect if configured else known.dialect], endpoint)

    def choose(self, agent: Agent) -> Chosen:
        """The model of `agent`, with its fallbacks. Raises `ConfigError` if it cannot be used as configured.

        A fallback that cannot be used is left out with a warning.
        """
        key = (agent.model, agent.fallbacks)
        chosen = self._chosen.get(key)
        if chosen is None:
            chosen = self._chosen[key] = self._compose(agent)
        return chosen

    def _compose(self, agent: Agent) -> Chosen:
        first = self._resolve(agent.model)
        others: dict[str, Chosen] = {}
        for name in agent.fallbacks:
            try:
                other = self._resolve(name)
            except ConfigError as e:
                log.warning("fallback left out", extra={"agent": agent.id, "model": name, "why": str(e)})
            else:
                if other.scope != first.scope:
                    others.setdefault(other.scope, other)
        if not others:
            return replace(first, model=_patient(first))
        candidates = [
            Candidate(_patient(c, longest_s=FALLBACK_WAIT_S), c.name, c.label, self._breaker(c))
            for c in (first, *others.values())
        ]
        return replace(first, model=FallbackModel(candidates))

    def _breaker(self, chosen: Chosen) -> Breaker:
        return self._breakers.setdefault(chosen.scope, Breaker())

    def _resolve(self, written: str) -> Chosen:
        """One model, without retries. `written` as in the configuration."""
        provider, model = split(self._full_name(written))
        match provider:
            case "demo":
                return Chosen(DemoModel(), "demo", "demo", "demo")
            case "scripted":
                return Chosen(self._scripted(model), model or "scripted", "scripted", "scripted")
            case _:
                return self._real(provider, model)

    def _full_name(self, written: str) -> str:
        written = expand(written, self._config.env).strip()
        if written in ("", "default"):
            return self.default()
        if written == "mini":
            env = self._config.env.get("NANOBOT_DEFAULT_MINI_MODEL", "").strip()
            return env or self._config.default_mini_model.strip() or self.default()
        return written

    def _named_default(self) -> str:
        named = (
            self._config.env.get("NANOBOT_DEFAULT_MODEL", "").strip() or self._config.default_model.strip()
        )
        return "" if named == "default" else named

    def _keyed_default(self) -> str:
        for provider, model in DEFAULT_MODELS.items():
            configured = self._config.llm_providers.get(provider)
            if self._key(configured, PROVIDERS[provider]):
                return f"{provider}/{model}"
        return ""

    def _scripted(self, path: str) -> ScriptedModel:
        if self._script is not None and not path:
            return self._script
        path = path or self._config.env.get(SCRIPT, "")
        if not path:
            raise ConfigError(f"The model 'scripted' plays a file: write `scripted/<file>` or set {SCRIPT}.")
        script = self._scripts.get(path)
        if script is None:
            script = self._scripts[path] = load_script(Path(path))
        return script

    def _real(self, provider: str, model: str) -> Chosen:
        configured = self._config.llm_providers.get(provider)
        known_name = find_known(provider)
        if configured is None and known_name:
            provider = known_name
            configured = self._config.llm_providers.get(provider)
        known = PROVIDERS[known_name] if known_name else Known()
        if configured is None and known_name is None:
            if self._local and provider == self._local.provider:
                known = Known(base_url=self._local.base_url, local=True)
            else:
                raise ConfigError(
                    f"There is no model provider {provider!r}; configure it under `llmProviders`, "
                    f"or use one of: {', '.join(sorted({*self._config.llm_providers, *PROVIDERS}))}."
                )
        if not model:
            raise ConfigError(f"The model string {provider + '/'!r} names a provider but no model.")
        endpoint = self._endpoint(provider, model, configured, known)
        name = _own_name(model, known)
        answering = self._providers.get(provider)
        if answering is None:
            dialect = _DIALECTS[configured.dialect if configured else known.dialect]
            answering = Provider(dialect, endpoint, self._http, idle_s=self._idle_s)
            self._providers[provider] = answering
        return Chosen(answering, name, provider, endpoint.scope(name))

    def _endpoint(self, provider: str, model: str, configured: LlmProvider | None, known: Known) -> Endpoint:
        env = self._config.env
        written = configured.base_url if configured else ""
        base = (expand_or_none(written, env) or "").strip() or env.get(known.base_env, "").strip()
        own_address = not base
        base = base or known.base_url
        if self._local and self._local.provider == provider and own_address:
            base = self._local.base_url
        if not base:
            raise ConfigError(f"Provider {provider!r} has no address: set `llmProviders.{provider}.baseURL`.")
        base = base.rstrip("/")
        dialect = configured.dialect if configured else known.dialect
        if dialect == "AnthropicMessages" and not base.endswith("/v1"):
            base += "/v1"
        key = self._key(configured, known)
        needs_key = bool(known.env) and not known.local
        if not key and (needs_key or (configured is not None and configured.api_key and not known.local)):
            variable = known.env[0] if known.env else configured.api_key if configured else ""
            raise ConfigError(
                f"The model {f'{provider}/{model}'!r} needs an API key: set {variable.strip('${}')}, "
                "or use the model `demo` to try nanobot without one."
            )
        quirks = known.quirks
        if not own_address and quirks.prompt_cache:  # a gateway need not know the fields for caching
            quirks = replace(quirks, prompt_cache=False)
        headers = dict(known.headers or {})
        if configured:
            headers |= {name: expand(value, env) for name, value in configured.headers.items()}
        return Endpoint(provider=provider, base_url=base, api_key=key, headers=headers, quirks=quirks)

    def _key(self, configured: LlmProvider | None, known: Known) -> str:
        """The key of a provider, "" if there is none: configured, else from the variables of the table."""
        env = self._config.env
        if configured and (key := (expand_or_none(configured.api_key, env) or "").strip()):
            return key
        return next((key for name in known.env if (key := env.get(name, "").strip())), "")


def split(model: str) -> tuple[str, str]:
    """(provider, the provider's name of the model) of a full model string."""
    provider, slash, rest = model.partition("/")
    if slash:
        return provider, rest
    if model in ("demo", "scripted"):
        return model, ""
    return ("anthropic" if model.startswith("claude") else "openai"), model


def _own_name(model: str, known: Known) -> str:
    for prefix in known.strip:
        model = model.removeprefix(prefix + "/")
    return model.rpartition("/")[2] if known.last_segment else model


def _patient(chosen: Chosen, *, longest_s: float | None = None) -> Model:
    """The model with retries, if a provider answers it: a script fails on purpose, the demo never."""
    return (
        RetryingModel(chosen.model, longest_s=longest_s)
        if isinstance(chosen.model, Provider)
        else chosen.model
    )
