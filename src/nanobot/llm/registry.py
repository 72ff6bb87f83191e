"""The table of known model providers. `llmProviders` of the configuration goes over it.

The order is that of preference when no model is named and several keys are at hand: see `DEFAULT_MODELS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nanobot.config.model import Dialect
from nanobot.llm.endpoint import DOCUMENTED, Quirks


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of a provider. A `base_url` of "" must be configured; `env` names variables for its key.

    `strip` are prefixes its model names may carry and that it does not want. A `local` one needs no key.
    """

    env: tuple[str, ...] = ()
    base_url: str = ""
    dialect: Dialect = "OpenAIChatCompletions"
    base_env: str = ""
    strip: tuple[str, ...] = ()
    last_segment: bool = False
    """Of a model name only what follows the last `/` is sent."""
    local: bool = False
    headers: Mapping[str, str] | None = None
    quirks: Quirks = DOCUMENTED


_ARK: Final = Quirks(thinking="thinking_type", max_completion_tokens=True)
_BYTEPLUS: Final = Quirks(thinking="thinking_type")

PROVIDERS: Final[Mapping[str, Known]] = {
    "openai": Known(
        env=("OPENAI_API_KEY",),
        base_url="https://api.openai.com/v1",
        base_env="OPENAI_BASE_URL",
        dialect="OpenAIResponses",
        quirks=Quirks(max_completion_tokens=True, prompt_cache=True),
    ),
    "anthropic": Known(
        env=("ANTHROPIC_API_KEY",),
        base_url="https://api.anthropic.com/v1",
        base_env="ANTHROPIC_BASE_URL",
        dialect="AnthropicMessages",
        quirks=Quirks(prompt_cache=True),
    ),
    "custom": Known(strip=("custom",)),
    "azure_openai": Known(),
    "openrouter": Known(
        env=("OPENROUTER_API_KEY",),
        base_url="https://openrouter.ai/api/v1",
        headers={"X-OpenRouter-Title": "nanobot"},
    ),
    "orcarouter": Known(env=("ORCAROUTER_API_KEY",), base_url="https://api.orcarouter.ai/v1"),
    "edenai": Known(env=("EDENAI_API_KEY",), base_url="https://api.edenai.run/v3"),
    "opencode": Known(
        env=("OPENCODE_API_KEY",), base_url="https://opencode.ai/zen/v1", strip=("opencode", "opencode-zen")
    ),
    "opencode_go": Known(
        env=("OPENCODE_API_KEY",), base_url="https://opencode.ai/zen/go/v1", strip=("opencode-go",)
    ),
    "huggingface": Known(env=("HF_TOKEN",), base_url="https://router.huggingface.co/v1"),
    "skywork": Known(env=("SKYWORK_API_KEY", "APIFREE_API_KEY"), base_url="https://api.apifree.ai/agent/v1"),
    "aihubmix": Known(env=("AIHUBMIX_API_KEY",), base_url="https://aihubmix.com/v1", last_segment=True),
    "siliconflow": Known(env=("SILICONFLOW_API_KEY",), base_url="https://api.siliconflow.cn/v1"),
    "novita": Known(env=("NOVITA_API_KEY",), base_url="https://api.novita.ai/openai"),
    "volcengine": Known(
        env=("ARK_API_KEY",), base_url="https://ark.cn-beijing.volces.com/api/v3", quirks=_ARK
    ),
    "volcengine_coding_plan": Known(
        env=("ARK_API_KEY",),
        base_url="https://ark.cn-beijing.volces.com/api/coding/v3",
        strip=("volcengine-coding-plan", "volcengine_coding_plan"),
        quirks=_ARK,
    ),
    "byteplus": Known(
        env=("BYTEPLUS_API_KEY",),
        base_url="https://ark.ap-southeast.bytepluses.com/api/v3",
        strip=("byteplus",),
        quirks=_BYTEPLUS,
    ),
    "byteplus_coding_plan": Known(
        env=("BYTEPLUS_API_KEY",),
        base_url="https://ark.ap-southeast.bytepluses.com/api/coding/v3",
        strip=("byteplus-coding-plan", "byteplus_coding_plan"),
        quirks=_BYTEPLUS,
    ),
    "deepseek": Known(
        env=("DEEPSEEK_API_KEY",),
        base_url="https://api.deepseek.com",
        quirks=Quirks(thinking="thinking_type", string_content=True, replay_reasoning=True),
    ),
    "gemini": Known(
        env=("GEMINI_API_KEY",), base_url="https://generativelanguage.googleapis.com/v1beta/openai"
    ),
    "zhipu": Known(
        env=("ZAI_API_KEY", "ZHIPUAI_API_KEY"),
        base_url="https://open.bigmodel.cn/api/paas/v4",
        quirks=Quirks(tool_stream=True),
    ),
    "dashscope": Known(
        env=("DASHSCOPE_API_KEY",),
        base_url="https://dashscope.aliyuncs.com/compatible-mode/v1",
        quirks=Quirks(thinking="enable_thinking"),
    ),
    "modelscope": Known(
        env=("MODELSCOPE_API_KEY",),
        base_url="https://api-inference.modelscope.cn/v1",
        strip=("modelscope",),
        quirks=Quirks(thinking="enable_thinking"),
    ),
    "moonshot": Known(env=("MOONSHOT_API_KEY",), base_url="https://api.moonshot.ai/v1"),
    "kimi_coding": Known(
        env=("KIMI_CODING_API_KEY",),
        base_url="https://api.kimi.com/coding/v1",
        dialect="AnthropicMessages",
    ),
    "minimax": Known(
        env=("MINIMAX_API_KEY",),
        base_url="https://api.minimax.io/v1",
        quirks=Quirks(thinking="reasoning_split"),
    ),
    "minimax_anthropic": Known(
        env=("MINIMAX_API_KEY",), base_url="https://api.minimax.io/anthropic", dialect="AnthropicMessages"
    ),
    "mistral": Known(
        env=("MISTRAL_API_KEY",),
        base_url="https://api.mistral.ai/v1",
        quirks=Quirks(short_call_ids=True),
    ),
    "stepfun": Known(env=("STEPFUN_API_KEY",), base_url="https://api.stepfun.com/v1"),
    "xiaomi_mimo": Known(
        env=("XIAOMIMIMO_API_KEY",),
        base_url="https://api.xiaomimimo.com/v1",
        quirks=Quirks(thinking="thinking_type"),
    ),
    "longcat": Known(env=("LONGCAT_API_KEY",), base_url="https://api.longcat.chat/openai/v1"),
    "ant_ling": Known(env=("ANT_LING_API_KEY",), base_url="https://api.ant-ling.com/v1"),
    "vllm": Known(env=("HOSTED_VLLM_API_KEY",), base_url="http://localhost:8000/v1", local=True),
    "llama_cpp": Known(base_url="http://localhost:8080/v1", local=True),
    "ollama": Known(env=("OLLAMA_API_KEY",), base_url="http://localhost:11434/v1", local=True),
    "lm_studio": Known(env=("LM_STUDIO_API_KEY",), base_url="http://localhost:1234/v1", local=True),
    "atomic_chat": Known(env=("ATOMIC_CHAT_API_KEY",), base_url="http://localhost:1337/v1", local=True),
    "ovms": Known(base_url="http://localhost:8000/v3", local=True),
    "nvidia": Known(env=("NVIDIA_NIM_API_KEY",), base_url="https://integrate.api.nvidia.com/v1"),
    "groq": Known(env=("GROQ_API_KEY",), base_url="https://api.groq.com/openai/v1"),
    "qianfan": Known(env=("QIANFAN_API_KEY",), base_url="https://qianfan.baidubce.com/v2"),
}

DEFAULT_MODELS: Final[Mapping[str, str]] = {
    "openai": "gpt-4.1",
    "anthropic": "claude-sonnet-5",
    "openrouter": "openai/gpt-4.1",
    "gemini": "gemini-2.5-flash",
    "mistral": "mistral-large-latest",
    "deepseek": "deepseek-chat",
    "groq": "llama-3.3-70b-versatile",
    "moonshot": "kimi-k2-0905-preview",
}
"""The model used when none is named and the provider's key is set; the first such provider wins.

Keys that people keep for other purposes (a download token) do not make a provider the default.
"""

LOCAL_SERVERS: Final[Mapping[str, str]] = {
    "ollama": "http://127.0.0.1:11434/v1",
    "lm_studio": "http://127.0.0.1:1234/v1",
    "llama_cpp": "http://127.0.0.1:8080/v1",
    "vllm": "http://127.0.0.1:8000/v1",
    "atomic_chat": "http://127.0.0.1:1337/v1",
}
"""Where model servers of this machine usually listen, in order of preference."""


def find_known(name: str) -> str | None:
    """The table's spelling of `name`: `-` and `_` are the same, and so are capitals."""
    wanted = name.lower().replace("-", "_")
    wanted = {"opencode_zen": "opencode"}.get(wanted, wanted)
    return wanted if wanted in PROVIDERS else None
