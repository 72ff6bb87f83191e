"""What is there without being configured: an agent, a server, model providers."""

from __future__ import annotations

from typing import Any

from nanobot.config.model import Dialect

AGENT = "nanobot"
PREFIX = "nanobot."
"""Names that begin like this belong to the program."""

SYSTEM = "nanobot.system"
SERVERS = frozenset({SYSTEM})
"""Built-in servers that exist and need no declaration."""

AGENTS = "nanobot.agent"
"""The built-in server whose tools are the agents. Documents do not name it: they name the agents."""

SYSTEM_TOOLS = {
    name.lower(): name
    for name in ("read", "write", "edit", "glob", "grep", "bash", "webFetch", "todoWrite", "askUserQuestion")
}
"""Tools of `nanobot.system` that `tools` may name alone, in any capitalisation."""

ARGUMENTS = {
    "bash": ("command", "timeout", "description", "workdir"),
    "read": ("file_path", "offset", "limit", "pages"),
    "write": ("file_path", "content"),
    "edit": ("file_path", "old_string", "new_string", "replace_all"),
    "glob": ("pattern", "path"),
    "grep": (
        *("pattern", "path", "glob", "type", "output_mode", "-A", "-B", "-C", "-n", "-i", "multiline"),
        *("head_limit", "offset"),
    ),
    "todoWrite": ("todos",),
}
"""Tool of `nanobot.system` → its arguments, so that rules about others are found out."""
PATH_ARGUMENTS = {
    "read": "file_path",
    "write": "file_path",
    "edit": "file_path",
    "glob": "path",
    "grep": "path",
    "bash": "workdir",
}
"""Tool of `nanobot.system` → its argument that is a path."""
CHAT_ARGUMENTS = ("prompt", "attachments")
"""The arguments of a tool that talks to an agent."""

RESERVED_PROVIDERS = frozenset({"demo", "scripted"})

PROVIDERS: dict[str, dict[str, Any]] = {
    "openai": {
        "dialect": "OpenAIResponses",
        "apiKey": "${OPENAI_API_KEY}",
        "baseURL": "${OPENAI_BASE_URL}",
    },
    "anthropic": {
        "dialect": "AnthropicMessages",
        "apiKey": "${ANTHROPIC_API_KEY}",
        "baseURL": "${ANTHROPIC_BASE_URL}",
    },
}
"""Configured providers of these names overlay them key by key."""

_CHAT_COMPLETIONS = (
    "aihubmix ant_ling atomic_chat azure_openai byteplus byteplus_coding_plan custom dashscope "
    "deepseek edenai gemini groq huggingface llama_cpp lm_studio longcat minimax mistral modelscope moonshot "
    "novita nvidia ollama opencode opencode_go openrouter orcarouter ovms qianfan siliconflow "
    "skywork stepfun vllm volcengine volcengine_coding_plan xiaomi_mimo zhipu"
)
KNOWN_PROVIDERS: dict[str, Dialect] = {
    **dict.fromkeys(_CHAT_COMPLETIONS.split(), "OpenAIChatCompletions"),
    "kimi_coding": "AnthropicMessages",
    "minimax_anthropic": "AnthropicMessages",
    "openai": "OpenAIResponses",
    "anthropic": "AnthropicMessages",
}
"""Providers a model may name without any configuration, and the dialect each speaks."""

_OTHER_NAMES = {"opencode_zen": "opencode"}


def chat_tool(agent_id: str) -> str:
    """The tool that talks to an agent. Ids of agents in folders contain `/`, tool names must not."""
    return "chat-with-" + agent_id.replace("/", "-")


def dialect_of(provider: str) -> Dialect | None:
    """What a known provider speaks, None if it is not known. `-` counts as `_`, capitals as small letters."""
    name = provider.lower().replace("-", "_")
    return KNOWN_PROVIDERS.get(_OTHER_NAMES.get(name, name))


INSTRUCTIONS = """\
You are Nanobot, a capable and careful assistant.

Work towards what the person asked for, using your tools whenever they give a better answer than memory. \
Look before you change anything: read a file before you edit it. Prefer small steps whose result you can \
check, and check them. When something fails, say what failed and try another way; never claim a result you \
did not see. Ask only when you cannot find out by yourself and a wrong guess would do harm.

Answer in the language of the person, plainly and briefly, the result first."""


def agent_document() -> dict[str, Any]:
    """The built-in agent, as a document that could stand in `nanobot.yaml`."""
    return {
        "name": "Nanobot",
        "description": "A general-purpose assistant.",
        "instructions": INSTRUCTIONS,
        "mcpServers": [SYSTEM],
        "temperature": 0.3,
        "permissions": {"*": "allow"},
    }
