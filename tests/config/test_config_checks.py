"""What is wrong with a document that can be read: every finding with its place and a way out."""

# ruff: noqa: E501 - a message is easier to compare on one line

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nanobot.config.builtin import KNOWN_PROVIDERS, dialect_of
from nanobot.config.keys import AGENT, DOCUMENT, MCP_SERVER, PUBLISH
from nanobot.config.load import examine
from nanobot.config.model import OutputSchema, PromptField, PromptRef
from nanobot.config.places import Reference
from nanobot.config.redact import redact
from nanobot.config.shapes import nearest, spellings
from nanobot.llm import registry

if TYPE_CHECKING:
    from conftest import Folder


@pytest.mark.parametrize(
    ("document", "finding"),
    [
        (
            "mcpServers:\n  s:\n    url: https://x.example\n    headers: {A: 'Bearer ${http:bearer-token}'}\n    sharing: global",
            "5:14: error[bad-value] mcpServers.s.sharing: The server 's' cannot be shared by all: ${http:bearer-token} differs from caller to caller. (write `sharing: account`, or leave it out)",
        ),
        (
            "env:\n  KEY: {useBearerToken: true, optional: true}\nmcpServers:\n  s:\n    url: https://x.example/${KEY}\n    sharing: global",
            "6:14: error[bad-value] mcpServers.s.sharing: The server 's' cannot be shared by all: ${KEY} differs from caller to caller. (write `sharing: account`, or leave it out)",
        ),
        (
            "agent:\n  a: {}",
            "1:1: error[unknown-key] agent: The key 'agent' is not known here. (did you mean 'agents'?)",
        ),
        (
            "agents:\n  a:\n    modle: x",
            "3:5: error[unknown-key] agents.a.modle: The key 'modle' is not known here. (did you mean 'model'?)",
        ),
        (
            "agents:\n  a:\n    reasoning:\n      effor: low",
            "4:7: error[unknown-key] agents.a.reasoning.effor: The key 'effor' is not known here. (did you mean 'effort'?)",
        ),
        (
            "mcpServers:\n  s:\n    command: x\n    arg: [y]",
            "4:5: error[unknown-key] mcpServers.s.arg: The key 'arg' is not known here. (did you mean 'args'?)",
        ),
        (
            "mcpServers:\n  s:\n    command: x\n    tool_overrides: {t: {descripton: y}}",
            "4:26: error[unknown-key] mcpServers.s.toolOverrides.t.descripton: The key 'descripton' is not known here. (did you mean 'description'?)",
        ),
        (
            "llmProviders: {openai: {api_kye: x}}",
            "1:25: error[unknown-key] llmProviders.openai.api_kye: The key 'api_kye' is not known here. (did you mean 'apiKey'?)",
        ),
        (
            "publish: {entrypoints: a}",
            "1:11: error[unknown-key] publish.entrypoints: The key 'entrypoints' is not known here. (did you mean 'entrypoint'?)",
        ),
        (
            "prompts: {p: {templat: x}}",
            "1:15: error[unknown-key] prompts.p.templat: The key 'templat' is not known here. (did you mean 'template'?)",
        ),
        (
            "env: {X: {optinal: true}}",
            "1:11: error[unknown-key] env.X.optinal: The key 'optinal' is not known here. (did you mean 'optional'?)",
        ),
        (
            "server: {cors: [x]}",
            "1:10: error[unknown-key] server.cors: The key 'cors' is not known here. (known keys: allowedHosts, corsOrigins, listTtlMs, maxBodyBytes, maxConcurrentRequests, maxMessageBytes, publicURL, requireSecret, trustTraceContext, trustedProxies)",
        ),
        (
            "sessions: {maxLife: 3}",
            "1:12: error[unknown-key] sessions.maxLife: The key 'maxLife' is not known here. (did you mean 'maxLive'?)",
        ),
        (
            "agents: {a: {permissions: {bsh: deny}}}",
            "1:28: error[unknown-key] agents.a.permissions.bsh: There is no such permission; known: *, read, write, edit, glob, grep, bash, todoWrite, webFetch, skills, askUserQuestion.",
        ),
    ],
)
def test_misspelt_keys(folder: Folder, document: str, finding: str) -> None:
    folder.write("x.yaml", document)
    assert folder.findings("./x.yaml") == [f"./x.yaml:{finding}"]


@pytest.mark.parametrize("key", ["flow", "mcpRegistries"])
def test_keys_that_nothing_carries_out_are_unknown(folder: Folder, key: str) -> None:
    folder.write("x.yaml", f"{key}: {{}}")
    assert folder.codes("./x.yaml") == ["unknown-key"]


DIGEST = "a" * 64


@pytest.mark.parametrize(
    ("document", "finding"),
    [
        ("auth: {apiKeys: [{name: a}]}", "auth.apiKeys[0]: A key needs `name` and `sha256`."),
        ("auth: {apiKeys: [{name: a, sha256: abc}]}", "auth.apiKeys[0].sha256: This is not 64 hexadecimal digits."),
        (
            f"auth: {{apiKeys: [{{name: a, sha256: {DIGEST}}}, {{name: a, sha256: {DIGEST}}}]}}",
            "auth.apiKeys[1]: Two keys have the name 'a'.",
        ),
        (
            f"auth: {{apiKeys: [{{name: a, sha256: {DIGEST}}}, {{name: b, sha256: {DIGEST.upper()}}}]}}",
            "auth.apiKeys[1]: 'a' and 'b' have the same key, so nobody could tell them apart.",
        ),
        ("auth: {apiKeys: []}", "auth.apiKeys: An empty list would leave everything open to everybody: name a key"),
        *(
            (
                f"auth: {{trustedIssuer: 'https://i', trustedAudiences: x, jwks: '{jwks}'}}",
                "auth.jwks: This is no JSON Web Key Set",
            )
            for jwks in ("{", "[]", '{"keys": []}', '"keys"')
        ),
        ("auth: {trustedIssuer: https://i}", "auth.trustedIssuer: `trustedIssuer` needs `trustedAudiences` beside it."),
        ("auth: {trustedAudiences: x}", "auth.trustedAudiences: `trustedAudiences` needs `trustedIssuer` beside it."),
        ("auth: {jwks: '{}'}", "auth.jwks: `jwks` needs `trustedIssuer` beside it."),
        (
            "auth: {oauthClientId: x}",
            "auth.oauthClientId: `oauthClientId` needs `oauthClientSecret` and `oauthAuthorizeUrl` beside it.",
        ),
        (
            "auth: {apiKeyAuthUrl: 'http://example.com/'}",
            "auth.apiKeyAuthWebhookUrl: This is no https:// address (http:// is for this machine only).",
        ),
        ("auth: {remoteHeaders: true}", "auth.remoteHeaders: Anybody could send these headers: name the proxies to believe."),
        ("server: {trustedProxies: [x]}", "server.trustedProxies[0]: This is neither an IP address nor a network such as 10.0.0.0/8."),
        ("server: {publicURL: 'https://x/y'}", "server.publicURL: This is no address of a server, such as https://bot.example.com."),
    ],
)  # fmt: skip
def test_authentication_that_would_not_work_is_reported(folder: Folder, document: str, finding: str) -> None:
    folder.write("x.yaml", document)
    assert any(finding in found for found in folder.findings("./x.yaml"))


@pytest.mark.parametrize(
    ("document", "finding"),
    [
        ("agents: []", "1:9: error[wrong-type] agents: Expected a mapping, found a list."),
        ("agents: {a: x}", "1:13: error[wrong-type] agents.a: Expected a mapping, found text."),
        ("agents: {a: {model: 5}}", "1:21: error[wrong-type] agents.a.model: Expected text, found a number. (put the value in quotes)"),
        ("agents: {a: {chat: 'yes'}}", "1:20: error[wrong-type] agents.a.chat: Expected true or false, found text. (write true or false)"),
        ("agents: {a: {tools: {x: y}}}", "1:21: error[wrong-type] agents.a.tools: Expected a list of texts, or one text, found a mapping."),
        ("agents: {a: {tools: [1]}}", "1:22: error[wrong-type] agents.a.tools[0]: Expected text, found a number. (put the value in quotes)"),
        ("agents: {a: {maxTokens: '5'}}", "1:25: error[wrong-type] agents.a.maxTokens: Expected a whole number, found text. (write it without quotes)"),
        ("agents: {a: {maxTokens: 1.5}}", "1:25: error[wrong-type] agents.a.maxTokens: Expected a whole number, found a number."),
        ("agents: {a: {maxTokens: 0}}", "1:25: error[bad-value] agents.a.maxTokens: 0 is out of range: at least 1."),
        ("agents: {a: {topP: 2}}", "1:20: error[bad-value] agents.a.topP: 2 is out of range: at least 0 and at most 1."),
        ("agents: {a: {maxIterations: true}}", "1:29: error[wrong-type] agents.a.maxIterations: Expected a whole number, found true/false."),
        ("agents: {a: {parallelTools: on}}", "1:29: error[bad-value] agents.a.parallelTools: 'on' is not one of auto, off."),
        ("agents: {a: {permissions: {read: ask}}}", "1:34: error[bad-value] agents.a.permissions.read: 'ask' is not one of allow, deny."),
        ("agents: {a: {instructions: 5}}", "1:28: error[wrong-type] agents.a.instructions: Expected text, or a mapping with mcpServer and prompt, found a number. (put the value in quotes)"),
        ("mcpServers: {s: {command: x, env: {PORT: 8080}}}", "1:42: error[wrong-type] mcpServers.s.env.PORT: Expected text, found a number. (put the value in quotes)"),
        ("mcpServers: {s: {command: x, toolTimeout: soon}}", "1:43: error[bad-value] mcpServers.s.toolTimeout: This is not a duration; write seconds, or `500ms`, `90s`, `15m`, `2h`."),
        ("llmProviders: {x: {dialect: Grok}}", "1:29: error[bad-value] llmProviders.x.dialect: 'Grok' is not one of OpenAIResponses, OpenAIChatCompletions, AnthropicMessages."),
        ("llmProviders: {x: {apiKey: [sk-secret]}}", "1:28: error[wrong-type] llmProviders.x.apiKey: Expected text, found a list."),
        ("env: {X: 5}", "1:10: error[wrong-type] env.X: Expected a mapping, or text (its description), found a number."),
        ("sessions: {idleTimeout: 2s}", "1:25: error[bad-value] sessions.idleTimeout: 2 is out of range: at least 10 and at most 604800."),
    ],
)  # fmt: skip
def test_values_of_the_wrong_kind(folder: Folder, document: str, finding: str) -> None:
    folder.write("x.yaml", document)
    assert folder.findings("./x.yaml") == [f"./x.yaml:{finding}"]


@pytest.mark.parametrize(
    ("document", "finding"),
    [
        ("agents: {a: {tools: [kbb/x]}}\nmcpServers: {kb: {command: k}}", "1:22: error[unknown-server] agents.a.tools[0]: 'kbb/x' refers to 'kbb', which does not exist. (did you mean 'kb'?)"),
        ("agents: {a: {mcpServers: nanobot.tasks}}", "1:26: error[unknown-server] agents.a.mcpServers[0]: 'nanobot.tasks' refers to 'nanobot.tasks', which does not exist. (built-in servers: nanobot.system)"),
        ("agents: {a: {mcpServers: b}, b: {mode: subagent}}", "1:26: error[unknown-server] agents.a.mcpServers[0]: 'b' is an agent, not an MCP server. (agents are listed under `agents`)"),
        ("agents: {a: {agents: [bob]}}", "1:23: error[unknown-agent] agents.a.agents[0]: There is no agent 'bob'. (known agents: a, nanobot)"),
        ("agents: {a: {agents: [nanobot:x]}}", "1:23: error[bad-reference] agents.a.agents[0]: 'nanobot:x' must be an agent id alone, without tool or alias."),
        ("agents: {a: {agents: [s]}}\nmcpServers: {s: {command: x}}", "1:23: error[unknown-agent] agents.a.agents[0]: 's' is an MCP server, not an agent."),
        ("agents: {a: {tools: ['s/']}}\nmcpServers: {s: {command: x}}", "1:22: error[bad-reference] agents.a.tools[0]: 's/' is not of the form server[/tool][:alias]."),
        ("agents: {a: {}}\npublish: {tools: [a/y]}", "2:19: error[unknown-server] publish.tools[0]: 'a/y' refers to 'a', which does not exist. (define it under mcpServers)"),
        ("publish: {tools: [x/y]}", "1:19: error[unknown-server] publish.tools[0]: 'x/y' refers to 'x', which does not exist. (define it under mcpServers)"),
        ("publish: {entrypoint: x}", "1:23: error[unknown-agent] publish.entrypoint[0]: There is no agent 'x'. (known agents: nanobot)"),
        ("agents: {a: {mode: boss}}", "1:20: error[bad-mode] agents.a.mode: The agent 'a' has an unknown mode, 'boss'; known: chat, primary, all, subagent."),
        ("agents: {a: {model: gpt/x}}", "1:21: error[unknown-provider] agents.a.model: The model 'gpt/x' names the provider 'gpt', which does not exist. (define it under llmProviders)"),
        ("agents: {a: {fallbacks: [opnai/x]}}", "1:26: error[unknown-provider] agents.a.fallbacks[0]: The model 'opnai/x' names the provider 'opnai', which does not exist. (did you mean 'openai'?)"),
        ("agents: {a: {toolChoice: find, tools: [s/get]}}\nmcpServers: {s: {command: x}}", "1:26: error[bad-tool-choice] agents.a.toolChoice: The agent 'a' must call the tool 'find', which it is not given."),
        ("agents: {a: {instructions: {prompt: p}}}", "1:14: error[missing-key] agents.a.instructions.mcpServer: Instructions from a prompt need `mcpServer`."),
        ("agents: {a: {instructions: {mcpServer: s, prompt: p}}}", "1:40: error[unknown-server] agents.a.instructions.mcpServer: 's' refers to 's', which does not exist. (define it under mcpServers)"),
        ("agents: {a: {output: {name: x}}}", "1:14: error[missing-key] agents.a.output: Output takes exactly one of `fields` and `schema`."),
        ("agents: {a: {output: {schema: {type: strin}}}}", "1:31: error[bad-value] agents.a.output.schema: This is not a valid JSON Schema (at /type)."),
        ("agents: {a: {output: {fields: {'n(whole)': x}}}}", "1:32: error[bad-value] agents.a.output.fields.<…>: The field's type is not known. (known: int, float, bool, or words with commas between)"),
        ("agents: {a: {output: {fields: {n: x, 'n(int)': y}}}}", "1:38: error[bad-value] agents.a.output.fields.<…>: Two fields are named 'n'."),
        ("agents: {a: {temperature: 1, topP: 1}}", "1:36: warning[bad-value] agents.a.topP: temperature and topP are both set; providers advise to set only one."),
        ("agents: {a: {flows: {x: y}}}", "1:21: warning[ignored-key] agents.a.flows: `flows` no longer exists and has no effect."),
        ("agents: {nanobot: {}}", "1:10: error[reserved-name] agents.nanobot: The agent name 'nanobot' is reserved. (choose another name)"),
        ("agents: {nanobot.x: {}}", "1:10: error[reserved-name] agents.nanobot.x: The agent name 'nanobot.x' is reserved. (choose another name)"),
        ("mcpServers: {nanobot.system: {command: x}}", "1:14: error[reserved-name] mcpServers.nanobot.system: The server name 'nanobot.system' is built in and takes no settings. (write nanobot.system: {}, or leave it out)"),
        ("mcpServers: {nanobot.x: {command: x}}", "1:14: error[reserved-name] mcpServers.nanobot.x: The server name 'nanobot.x' is reserved. (choose another name)"),
        ("mcpServers: {nanobot: {command: x}}", "1:14: error[reserved-name] mcpServers.nanobot: The server name 'nanobot' is that of the built-in agent. (choose another name)"),
        ("llmProviders: {demo: {}}", "1:16: error[reserved-name] llmProviders.demo: The provider name 'demo' is reserved."),
        ("agents: {a: {}}\nmcpServers: {a: {url: 'https://h/mcp'}}", "1:10: error[duplicate-name] agents.a: 'a' is both an agent (under agents) and an MCP server (under mcpServers). (rename one of them)"),
        ("agents: {a: {}}\nprompts: {a: {template: x}}", "1:10: warning[duplicate-name] agents.a: 'a' is both an agent (under agents) and a prompt (under prompts)."),
        ("mcpServers: {s: {}}", "1:14: error[bad-server-shape] mcpServers.s: The server 's' needs `command` or `url`. (`command` starts a program, `url` reaches a server, both start one and reach it over HTTP)"),
        ("mcpServers: {s: {url: 'http://h', ports: a}}", "1:42: error[bad-server-shape] mcpServers.s.ports: The server 's' cannot have this: `ports` are for servers with both `command` and `url`."),
        ("mcpServers: {s: {command: x, image: a b}}", "1:37: error[bad-value] mcpServers.s.image: This is not made of letters, digits and `@:/._-` alone, not beginning with `-`."),
        ("mcpServers: {s: {command: x, type: sse}}", "1:36: error[bad-server-shape] mcpServers.s.type: The server 's' of type sse needs a `url`."),
        ("mcpServers: {s: {url: 'http://h', type: stdio}}", "1:41: error[bad-server-shape] mcpServers.s.type: The server 's' has a `url`, so its type is not stdio."),
        ("mcpServers: {s: {url: 'http://h', type: sse, protocol: modern}}", "1:41: error[bad-server-shape] mcpServers.s.type: The server 's': there is no `protocol: modern` over sse."),
        ("mcpServers: {s: {image: a, sandbox: off}}", "1:37: error[bad-server-shape] mcpServers.s.sandbox: The server 's' runs in a container, whose network is `host` (the engine's bridge) or `none`; with `unsandboxed: true` it runs without one."),
        ("mcpServers: {s: {command: x, sandboxed: true, unsandboxed: true}}", "1:60: error[bad-server-shape] mcpServers.s.unsandboxed: The server 's' is both `sandboxed` and `unsandboxed`."),
        ("mcpServers: {s: {command: x, sandbox: {extraArgs: a}}}", "1:51: error[bad-server-shape] mcpServers.s.sandbox.extraArgs: `extraArgs` is for servers in a container."),
        ("mcpServers: {s: {command: x, sandbox: maybe}}", "1:39: error[bad-value] mcpServers.s.sandbox: A `sandbox` is `off` or a section. (the section may be {})"),
        ("mcpServers: {s: {command: x, url: 'http://h', sandbox: {network: none}}}", "1:56: error[bad-server-shape] mcpServers.s.sandbox: The server 's' is reached by its `url`, which needs `network: host`."),
        ("mcpServers: {s: {command: x, sandbox: {memory: lots}}}", "1:48: error[bad-value] mcpServers.s.sandbox.memory: This is not a size such as `512m` or `2g`."),
        ("mcpServers: {s: {url: 'http://h', args: [x]}}", "1:41: error[bad-server-shape] mcpServers.s.args: The server 's' cannot have this: `args` is for servers with `command`."),
        ("mcpServers: {s: {url: 'ftp://h'}}", "1:23: error[bad-value] mcpServers.s.url: A url begins with http:// or https://."),
        ("mcpServers: {a/b: {command: x}}", "1:14: error[bad-id] mcpServers.a/b: A server name must not be empty or contain `/` or `:`; references are cut there."),
        ("mcpServers: {s: {command: x, toolOverrides: {a: {name: c}, b: {name: c}}}}", "1:60: error[bad-value] mcpServers.s.toolOverrides.b: Two tools of one server are both named 'c'."),
    ],
)  # fmt: skip
def test_what_does_not_fit_together(folder: Folder, document: str, finding: str) -> None:
    folder.write("x.yaml", document)
    assert folder.findings("./x.yaml") == [f"./x.yaml:{finding}"]


def test_everything_is_found_at_once_and_in_order(folder: Folder) -> None:
    folder.write(
        "x.yaml",
        """\
        agents:
          a:
            tools: [fs]
            mode: boss
            colour: red
        mcpServers:
          s: {}
        """,
    )
    assert [d.split(" ")[0] + d.split(" ")[1] for d in folder.findings("./x.yaml")] == [
        "./x.yaml:3:13:error[unknown-server]",
        "./x.yaml:4:11:error[bad-mode]",
        "./x.yaml:5:5:error[unknown-key]",
        "./x.yaml:7:3:error[bad-server-shape]",
    ]


def test_warnings_are_errors_when_strict(folder: Folder) -> None:
    folder.write("x.yaml", "agents: {a: {temperature: 1, topP: 1}}")
    assert folder.load("./x.yaml").agents["a"].top_p == 1
    (diagnostic,) = folder.diagnostics("./x.yaml", strict=True)
    assert diagnostic.severity == "error"


def test_diagnostics_as_json(folder: Folder) -> None:
    folder.write("x.yaml", "agnts: {}")
    (diagnostic,) = folder.diagnostics("./x.yaml")
    assert diagnostic.as_json() == {
        "severity": "error",
        "code": "unknown-key",
        "source": "./x.yaml",
        "line": 1,
        "column": 1,
        "path": "agnts",
        "message": "The key 'agnts' is not known here.",
        "hint": "did you mean 'agents'?",
    }


def test_everything_an_agent_can_be_told(folder: Folder) -> None:
    folder.write(
        "x.yaml",
        """\
        agents:
          main:
            name: Main
            short-name: M
            starterMessages: "Hello, you"
            metadata: {any: [thing, null]}
            instructions: {mcpServer: kb, prompt: p, args: {x: "${Y}"}}
            model: claude-x
            fallbacks: groq/llama, demo
            tools: [inherit, Read, "kb/search:find", helper, nanobot.system/bash]
            agents: ops/deploy
            prompts: [hello, kb/summary]
            permissions: {"*": deny, read: allow}
            toolChoice: find
            parallelTools: "off"
            max_iterations: 7
            reasoning: {effort: high}
            output:
              fields: {title: The title, "score(int)": {required: false}, "tags[]": "", "kind(a, b)": "", "at": {fields: {"x(float)": ""}}}
            toolExtensions: {find: {cache: true}}
          helper: {mode: subagent}
          ops/deploy: {mode: subagent}
        mcpServers: {kb: {command: kb, toolTimeout: 2m}}
        prompts: {hello: {template: "Hi ${name}", input: {name: Who, "n(int)": {required: false}}}}
        """,
    )
    config = folder.load("./x.yaml", agent="main")
    main = config.agents["main"]
    assert main.short_name == "M"
    assert main.starter_messages == ("Hello, you",)
    assert main.metadata == {"any": ["thing", None]}
    assert main.instructions == PromptRef(server="kb", prompt="p", args={"x": "${Y}"})
    assert main.fallbacks == ("groq/llama", "demo")
    assert main.tools == (
        Reference("nanobot.system", "read"),
        Reference("kb", "search", "find"),
        Reference("helper"),
        Reference("nanobot.system", "bash"),
    )
    assert main.agents == ("ops/deploy",)
    assert main.prompts == (Reference("hello"), Reference("kb", "summary"))
    assert (main.permits("read"), main.permits("bash")) == (True, False)
    assert (main.parallel_tools, main.max_iterations) == (False, 7)
    assert main.output == OutputSchema(
        schema={
            "type": "object",
            "properties": {
                "title": {"type": "string", "description": "The title"},
                "score": {"type": "integer"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "kind": {"type": "string", "enum": ["a", "b"]},
                "at": {
                    "type": "object",
                    "properties": {"x": {"type": "number"}},
                    "required": ["x"],
                    "additionalProperties": False,
                },
            },
            "required": ["title", "tags", "kind", "at"],
            "additionalProperties": False,
        }
    )
    assert config.mcp_servers["kb"].tool_timeout_s == 120
    assert config.prompts["hello"].input == (
        PromptField(name="name", description="Who"),
        PromptField(name="n", required=False),
    )


def test_providers_overlay_what_is_built_in(folder: Folder) -> None:
    folder.write(
        "x.yaml",
        "llmProviders: {openai: {base_url: 'http://gw:9/v1/'}, groq: {apiKey: k}, mine: {baseUrl: 'http://m'}}",
    )
    providers = folder.load("./x.yaml").llm_providers
    openai = providers["openai"]
    assert (openai.dialect, openai.api_key, openai.base_url) == (
        "OpenAIResponses",
        "${OPENAI_API_KEY}",
        "http://gw:9/v1",
    )
    assert providers["anthropic"].dialect == "AnthropicMessages"
    assert providers["groq"].dialect == "OpenAIChatCompletions"
    assert (providers["mine"].dialect, providers["mine"].base_url) == ("OpenAIResponses", "http://m")


@pytest.mark.parametrize(
    "model", ["lm-studio/x", "OpenRouter/a/b", "opencode-zen/x", "${P}/x", "demo", "scripted/a.json", "mini"]
)
def test_models_whose_provider_needs_no_configuration(folder: Folder, model: str) -> None:
    folder.write("x.json", json.dumps({"agents": {"a": {"model": model}}}))
    assert folder.findings("./x.json") == []


def test_the_known_providers_are_those_that_can_be_called() -> None:
    assert {name: known.dialect for name, known in registry.PROVIDERS.items()} == KNOWN_PROVIDERS
    assert all(dialect_of(name) for name in registry.LOCAL_SERVERS)


@pytest.mark.parametrize(("key", "same"), [("baseURL", {"baseUrl", "base_url", "base-url"}), ("mcpServers", {"mcp_servers", "mcp-servers"}), ("chat", set[str]()), ("topP", {"top_p", "top-p"})])  # fmt: skip
def test_spellings_of_one_key(key: str, same: set[str]) -> None:
    assert spellings(key) == {key} | same


@given(st.text("abcd", min_size=3, max_size=8), st.data())
def test_one_or_two_slips_are_forgiven(word: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(word) - 1))
    for slip in (word[:at] + word[at + 1 :], word[:at] + "x" + word[at:], word[:at] + "x" + word[at + 1 :]):
        assert nearest(slip, {word: word}) == word
    assert nearest(word + "xyz", {word: word}) == ""


WORDS = ["a", "nanobot", "s", "s/x", "", "auto", "subagent", "$replace", "${X}", "n(int)[]", *DOCUMENT.keys]
KEYS = st.sampled_from([*WORDS, *AGENT.keys, *MCP_SERVER.keys, *PUBLISH.keys, "fields", "schema", "prompt"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=25,
)
ALMOST = st.fixed_dictionaries(
    {},
    optional={
        "agents": st.dictionaries(st.sampled_from("ab"), st.dictionaries(st.sampled_from(list(AGENT.keys)), ANYTHING, max_size=5)),
        "mcpServers": st.dictionaries(st.sampled_from("st"), st.dictionaries(st.sampled_from(list(MCP_SERVER.keys)), ANYTHING)),
        "publish": st.dictionaries(st.sampled_from(list(PUBLISH.keys)), ANYTHING),
        "profiles": st.dictionaries(st.just("p"), ANYTHING),
        "env": ANYTHING,
        "prompts": ANYTHING,
        "llmProviders": ANYTHING,
        "server": ANYTHING,
    },
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(st.lists(ANYTHING | ALMOST, min_size=1, max_size=3), st.booleans())
def test_no_document_breaks_the_loader(folder: Folder, documents: list[Any], builtin_agents: bool) -> None:
    """Whatever is written, there is either a configuration or an error, and what is shown holds together."""
    for number, document in enumerate(documents):
        folder.write(f"{number}.json", json.dumps(document))
    sources = [f"./{number}.json" for number in range(len(documents))]
    examined = examine(folder.selection(sources, builtin_agents=builtin_agents, profiles=["p?"]))
    if examined.config is None:
        assert any(diagnostic.severity == "error" for diagnostic in examined.diagnostics)
        return
    config = examined.config
    assert set(config.publish.entrypoint) <= config.agents.keys()
    assert config.agents.keys() == config.document.get("agents", {}).keys()
    redact(config.document)
    for reference in (r for agent in config.agents.values() for r in (*agent.tools, *agent.mcp_servers)):
        assert reference.server in config.mcp_servers.keys() | config.agents.keys()


@pytest.mark.parametrize(
    ("document", "finding"),
    [
        ("mcpServers: {a: {url: 'http:///x'}}", "mcpServers.a.url: This is no address"),
        ("mcpServers: {a: {url: 'http://x:99999/'}}", "mcpServers.a.url: This is no address"),
        ("mcpServers: {a: {url: 'http://[x/'}}", "mcpServers.a.url: This is no address"),
        ("llmProviders: {a: {baseURL: 'https://:8'}}", "llmProviders.a.baseURL: This is no address"),
        ("llmProviders: {a: {baseURL: 'example.com'}}", "llmProviders.a.baseURL: A url begins with http"),
        ("mcpServers: {a: {url: 'http://x/', headers: {'A\\r\\nB': x}}}", "The name of a header is made of"),
        ("mcpServers: {a: {url: 'http://x/', headers: {'A B': x}}}", "The name of a header is made of"),
        ('mcpServers: {a: {url: "http://x/", headers: {A: "x\\r\\nB: y"}}}', "headers.A: The value of a header is one line."),
        ('llmProviders: {a: {headers: {A: "x\\ny"}}}', "headers.A: The value of a header is one line."),
        *(
            (f"mcpServers: {{a: {{url: 'http://x/', headers: {{{name}: x}}}}}}", f"The header '{name}' belongs to the protocol")
            for name in ("Host", "Mcp-Session-Id", "content-length", "Transfer-Encoding", "Connection")
        ),
        ("mcpServers: {a: {url: 'http://x/', oauth: {allowHosts: ['http://x']}}}", "oauth.allowHosts[0]: This is no host"),
        ("mcpServers: {a: {command: x, sandbox: {network: proxy, allowHosts: ['http://x']}}}", "allowHosts[0]: This is no host"),
        ("server: {allowedHosts: ['http://x']}", "server.allowedHosts[0]: This is no host"),
        ("server: {allowedHosts: ['*']}", "server.allowedHosts[0]: This is no host"),
        ("server: {corsOrigins: ['*']}", "server.corsOrigins[0]: Origins are named one by one"),
        ("server: {corsOrigins: ['https://x/app']}", "server.corsOrigins[0]: Origins are named one by one"),
        ("server: {corsOrigins: [example.com]}", "server.corsOrigins[0]: Origins are named one by one"),
    ],
)  # fmt: skip
def test_what_http_does_not_take_is_reported(folder: Folder, document: str, finding: str) -> None:
    folder.write("x.yaml", document)
    assert any(finding in found for found in folder.findings("./x.yaml")), folder.findings("./x.yaml")


def test_what_http_takes_is_not_reported(folder: Folder) -> None:
    folder.write(
        "x.yaml",
        """
        mcpServers:
          a:
            url: https://example.com:8443/mcp?x=${KEY}
            headers: {Authorization: "Bearer ${KEY}", X-Team: "a b", Accept: application/json, "${KEY}": x}
            oauth: {allowHosts: ["*.intranet.example", 10.1.0.0/16, "fd00::/8", sso_1.example]}
          b: {url: "${URL}"}
          c: {command: x, url: "http://127.0.0.1:${port:mcp}/mcp"}
        server:
          allowedHosts: [bot.example.com, "bot.example.com:8443", "[::1]", "[::1]:80"]
          corsOrigins: ["https://app.example.com", "http://localhost:5173/", "https://[::1]:8"]
        """,
    )
    folder.env |= {"KEY": "k", "URL": "http://x/"}
    assert folder.findings("./x.yaml") == []
