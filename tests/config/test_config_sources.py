"""Where configuration comes from: files, directories, homes, parents, profiles, entrypoints."""

# ruff: noqa: E501 - a message is easier to compare on one line

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nanobot.config.load import Selection, load_config
from nanobot.config.places import Reference
from nanobot.errors import ConfigError

if TYPE_CHECKING:
    from conftest import Folder


def test_without_any_configuration_there_is_one_agent(folder: Folder) -> None:
    config = folder.load()
    assert list(config.agents) == ["nanobot"]
    assert config.publish.entrypoint == ("nanobot",)
    assert config.default_agent.mcp_servers == (Reference("nanobot.system"),)
    assert config.default_agent.permits("bash")
    assert config.default_model == ""
    assert config.mcp_servers["nanobot.system"].builtin
    assert config.home == folder.person / ".nanobot"


def test_without_built_in_agents_there_must_be_something(folder: Folder) -> None:
    (problem,) = folder.findings("./.nanobot", builtin_agents=False)
    assert problem == "./.nanobot:1:1: error[no-config]: There is no file or directory './.nanobot'."
    (folder.path / ".nanobot").mkdir()
    assert folder.codes(builtin_agents=False) == ["no-config"]


def test_the_home_is_here_if_it_exists(folder: Folder) -> None:
    folder.write(".nanobot/nanobot.yaml", "agents: {a: {}}")
    config = folder.load()
    assert config.home == folder.path / ".nanobot"
    assert config.publish.entrypoint == ("a", "nanobot")
    assert str(config.origins["agents.a"]) == ".nanobot/nanobot.yaml:1:10"


def test_the_home_is_the_first_source(folder: Folder) -> None:
    folder.write("team/nanobot.yaml", "agents: {a: {}}")
    folder.write("one.yaml", "agents: {b: {}}")
    assert folder.load("./team", "./one.yaml").home == folder.path / "team"
    assert folder.load("./one.yaml").home == folder.path
    assert folder.load("./one.yaml,./team").publish.entrypoint == ("b", "a", "nanobot")


def test_a_variable_moves_the_home_and_sources_are_then_only_documents(folder: Folder) -> None:
    folder.write("elsewhere/agents/bo.md", "Hi")
    folder.write("one.yaml", "agents: {b: {}}")
    folder.env["NANOBOT_HOME"] = "./elsewhere"
    config = folder.load()
    assert (config.home, config.publish.entrypoint) == (folder.path / "elsewhere", ("bo", "nanobot"))
    config = folder.load("./one.yaml")
    assert (config.home, config.publish.entrypoint) == (folder.path / "elsewhere", ("b", "nanobot"))


def test_a_variable_names_the_sources(folder: Folder) -> None:
    folder.write("one.yaml", "agents: {b: {}}")
    folder.env["NANOBOT_CONFIG"] = "./one.yaml"
    assert folder.load().publish.entrypoint == ("b", "nanobot")


def test_the_persons_home_can_be_named(folder: Folder) -> None:
    (folder.person / "x.yaml").write_text("agents: {b: {}}")
    assert folder.load("~/x.yaml").home == folder.person


def test_settings_of_programs_are_merged_last(folder: Folder) -> None:
    folder.write(".nanobot/nanobot.yaml", "agents: {a: {model: openai/x}}")
    folder.write(".nanobot/settings.yaml", "agents: {a: {model: openai/y}}")
    assert folder.load().agents["a"].model == "openai/y"


def test_a_missing_source_is_named(folder: Folder) -> None:
    assert folder.findings("./missing.yaml") == [
        "./missing.yaml:1:1: error[no-config]: There is no file or directory './missing.yaml'."
    ]


def test_a_bare_name_is_no_local_file(folder: Folder) -> None:
    folder.write("team.yaml", "agents: {b: {}}")
    (problem,) = folder.findings("team.yaml")
    assert problem.startswith("team.yaml:1:1: error[source-error]: ")
    assert problem.endswith("(write ./team.yaml)")
    (problem,) = folder.findings("https://example.com/x.yaml")
    assert "only local files and directories" in problem


def test_an_empty_directory_is_no_configuration(folder: Folder) -> None:
    (folder.path / "empty").mkdir()
    (problem,) = folder.findings("./empty")
    assert problem.startswith(
        "./empty:1:1: error[no-config]: The directory './empty' holds no configuration."
    )


def test_the_default_directory_may_be_missing_among_others(folder: Folder) -> None:
    folder.write("one.yaml", "agents: {b: {}}")
    assert folder.load(".nanobot/", "./one.yaml").publish.entrypoint == ("b", "nanobot")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a: \xff", "x.yaml:1:4: error[syntax]: The file is not valid UTF-8 here."),
        (
            b"- a",
            "x.yaml:1:1: error[wrong-type]: A configuration document must be a mapping of keys to values.",
        ),
        (
            b" " * (1 << 20) + b" ",
            "x.yaml:1:1: error[source-error]: The file './x.yaml' is larger than 1024 KiB.",
        ),
    ],
)
def test_files_that_cannot_be_read(folder: Folder, content: bytes, problem: str) -> None:
    (folder.path / "x.yaml").write_bytes(content)
    assert folder.findings("./x.yaml") == ["./" + problem]


def test_a_pipe_is_not_read(folder: Folder) -> None:
    os.mkfifo(folder.path / "x.yaml")
    assert folder.findings("./x.yaml") == [
        "./x.yaml:1:1: error[source-error]: The file './x.yaml' is not a regular file."
    ]


@pytest.mark.parametrize("text", ["", "# nothing\n", "\ufeff# nothing\n", "~\n"])
def test_an_empty_file_is_an_empty_document(folder: Folder, text: str) -> None:
    folder.write("x.yaml", text)
    assert list(folder.load("./x.yaml").agents) == ["nanobot"]


def test_json_with_comments_is_a_document(folder: Folder) -> None:
    folder.write("x.json", '{"$schema": "https://x", "agents": {"a": {"max_tokens": 5,},} /* one */}')
    assert folder.load("./x.json").agents["a"].max_tokens == 5


# --- directories -----------------------------------------------------------------------------------------


def test_markdown_agents(folder: Folder) -> None:
    folder.write(
        ".nanobot/agents/bea.md",
        "---\nname: Bea\ntools: kb/search, web\nmax-tokens: 9\n---\n\nYou are ${X}.\n",
    )
    folder.write(".nanobot/agents/README.md", "about")
    folder.write(".nanobot/agents/.draft.md", "about")
    folder.write(".nanobot/agents/notes.txt", "about")
    folder.write(".nanobot/agents/deep/other.md", "about")
    folder.write(".nanobot/nanobot.yml", "mcpServers: {kb: {command: kb}, web: {url: 'https://w/mcp'}}")
    config = folder.load()
    bea = config.agents["bea"]
    assert list(config.agents) == ["bea", "nanobot"]
    assert (bea.instructions, bea.max_tokens, bea.display_name) == ("You are ${X}.", 9, "Bea")
    assert bea.tools == (Reference("kb", "search"), Reference("web"))
    assert str(config.origins["agents.bea.instructions"]) == ".nanobot/agents/bea.md:7:1"
    assert str(config.origins["agents.bea.maxTokens"]) == ".nanobot/agents/bea.md:4:1"


def test_a_markdown_agent_replaces_its_namesake_completely(folder: Folder) -> None:
    folder.write("d/nanobot.yaml", "agents: {a: {model: openai/x, temperature: 1}, b: {}}")
    folder.write("d/agents/a.md", "Hi")
    config = folder.load("./d")
    assert (config.agents["a"].model, config.agents["a"].temperature) == ("", None)
    assert "b" in config.agents
    assert folder.findings("./d") == [
        "./d/agents/a.md:1:1: info[agent-replaced] agents.a: Replaces the agent of that name at ./d/nanobot.yaml:1:10."
    ]


def test_the_id_is_the_file_name_and_the_body_wins(folder: Folder) -> None:
    folder.write("d/agents/a.md", "---\nid: other\ninstructions: from above\n---\nfrom below")
    assert folder.load("./d").agents["a"].instructions == "from below"
    assert [f.split(": ")[1] for f in folder.findings("./d")] == [
        "warning[bad-id] agents.a.id",
        "warning[ignored-key] agents.a.instructions",
    ]
    folder.write("d/agents/a.md", "---\nid: a\ninstructions: from above\n---\n")
    assert folder.load("./d").agents["a"].instructions == "from above"


def test_two_base_documents_are_one_too_many(folder: Folder) -> None:
    folder.write("d/nanobot.yaml", "agents: {a: {}}")
    folder.write("d/nanobot.json", "{}")
    (problem,) = folder.findings("./d")
    assert problem == (
        "./d/nanobot.json:1:1: error[duplicate-definition]: Both './d/nanobot.yaml' and './d/nanobot.json' exist; "
        "a directory has one base document."
    )


def test_a_broken_link_is_skipped_with_a_warning(folder: Folder) -> None:
    folder.write("d/agents/a.md", "Hi")
    (folder.path / "d/agents/b.md").symlink_to("nowhere.md")
    assert list(folder.load("./d").agents) == ["a", "nanobot"]
    assert folder.codes("./d") == ["source-error"]


def test_a_broken_agent_is_reported_once(folder: Folder) -> None:
    folder.write("d/agents/a.md", "---\nname: [\n---\nHi")
    folder.write("d/agents/main.md", "---\nagents: a\n---\nHi")
    assert folder.codes("./d") == ["front-matter-invalid"]


def test_an_odd_file_name_is_a_warning(folder: Folder) -> None:
    folder.write("d/agents/my agent.md", "Hi")
    (problem,) = folder.findings("./d")
    assert "warning[bad-id] agents.<…>" in problem


# --- entrypoints -----------------------------------------------------------------------------------------

CHAT, SUB, DEFAULT = "Hi", "---\nmode: subagent\n---\nHi", "---\ndefault: true\n---\nHi"


@pytest.mark.parametrize(
    ("agents", "base", "entrypoint"),
    [
        ({"bea": CHAT, "tom": DEFAULT}, "", ["tom", "bea"]),
        ({"audit": CHAT, "main": CHAT}, "", ["main", "audit"]),
        ({"audit": CHAT, "main": CHAT}, "publish: {entrypoint: audit}", ["audit", "main"]),
        ({"zoe": CHAT, "bea": CHAT, "a": SUB}, "", ["bea", "zoe"]),
        ({"a": SUB}, "publish: {entrypoint: b}\nagents: {b: {}}", ["b"]),
        ({"a": CHAT}, "agents: {b: {}, c: {default: true}}", ["c", "a"]),
        ({}, "agents: {b: {}}", ["b"]),
        ({}, "agents: {b: {}, a: {}, c: {mode: subagent}}", ["a", "b"]),
        ({}, "agents: {b: {}, a: {}}\npublish: {entrypoint: [b, a]}", ["b", "a"]),
        ({}, "agents: {b: {}, a: {default: true}}\npublish: {entrypoint: [b, a]}", ["a", "b"]),
    ],
)
def test_who_can_be_talked_to(
    folder: Folder, agents: dict[str, str], base: str, entrypoint: list[str]
) -> None:
    for id_, text in agents.items():
        folder.write(f"d/agents/{id_}.md", text)
    folder.write("d/nanobot.yaml", base)
    assert folder.load("./d").publish.entrypoint == (*entrypoint, "nanobot")
    assert folder.load("./d", builtin_agents=False).publish.entrypoint == tuple(entrypoint)


def test_a_lone_subagent_leaves_no_default(folder: Folder) -> None:
    folder.write("d/agents/a.md", SUB)
    (problem,) = folder.findings("./d")
    assert "error[no-default-agent] publish.entrypoint: No agent of './d' can be the default: a." in problem


def test_several_agents_of_a_file_need_an_entrypoint(folder: Folder) -> None:
    folder.write("x.yaml", "agents:\n  a: {}\n  b: {}\n")
    (problem,) = folder.findings("./x.yaml")
    assert problem == (
        "./x.yaml:2:3: error[no-entrypoint] publish.entrypoint: Nothing says which of the agents is the default: "
        "a, b. (name it in publish.entrypoint)"
    )


def test_two_defaults_and_a_default_subagent_are_errors(folder: Folder) -> None:
    folder.write("d/agents/a.md", DEFAULT)
    folder.write("d/agents/b.md", DEFAULT)
    folder.write("d/agents/c.md", "---\ndefault: true\nmode: subagent\n---\n")
    assert [f.split(": ", 2)[2] for f in folder.findings("./d")] == [
        "Two agents are the default: 'a' and 'b'.",
        "The agent 'c' is a subagent and cannot be the default.",
    ]


def test_the_first_source_keeps_its_default_unless_replaced(folder: Folder) -> None:
    folder.write("one/agents/a.md", CHAT)
    folder.write("two/agents/b.md", DEFAULT)
    folder.write("three.yaml", "publish: {entrypoint: {$replace: [b]}}")
    assert folder.load("./one", "./two").publish.entrypoint == ("a", "b", "nanobot")
    assert folder.load("./one", "./two", "./three.yaml").publish.entrypoint == ("b", "nanobot")


def test_an_agent_can_be_chosen_on_the_command_line(folder: Folder) -> None:
    folder.write("d/agents/a.md", CHAT)
    folder.write("d/agents/b.md", SUB)
    assert folder.load("./d", agent="b").publish.entrypoint == ("b", "a", "nanobot")
    assert folder.findings("./d", agent="c") == [
        "(command line): error[unknown-agent]: There is no agent 'c' to begin with; known agents: a, b, nanobot."
    ]


# --- several documents -----------------------------------------------------------------------------------


def test_a_reference_may_be_satisfied_by_another_source(folder: Folder) -> None:
    folder.write("x.yaml", 'agents: {x: {tools: ["fs/read:peek"]}}\nmcpServers: {}')
    folder.write("y.yaml", "mcpServers: {fs: {command: fs}}")
    assert folder.findings("./x.yaml") == [
        "./x.yaml:1:22: error[unknown-server] agents.x.tools[0]: 'fs/read:peek' refers to 'fs', which does not "
        "exist. (define it under mcpServers)"
    ]
    assert folder.load("./x.yaml", "./y.yaml").agents["x"].tools == (Reference("fs", "read", "peek"),)


def test_an_overlay_sets_exactly_what_it_says(folder: Folder) -> None:
    folder.write(
        "x.yaml",
        "agents: {a: {temperature: 1, tools: [fs], model: openai/m}}\nmcpServers: {fs: {command: f}, kb: {command: k}}",
    )
    folder.write("y.yaml", "agents: {a: {temperature: 0, chat: false, tools: {$replace: [kb]}}}")
    agent = folder.load("./x.yaml", "./y.yaml").agents["a"]
    assert (agent.temperature, agent.chat, agent.tools, agent.model) == (
        0,
        False,
        (Reference("kb"),),
        "openai/m",
    )


def test_spellings_differ_between_documents_but_not_within_one(folder: Folder) -> None:
    folder.write("x.yaml", "agents: {a: {max_tokens: 10}}")
    folder.write("y.yaml", "agents: {a: {maxTokens: 20}}")
    assert folder.load("./x.yaml", "./y.yaml").agents["a"].max_tokens == 20
    folder.write("z.yaml", "agents:\n  a:\n    max_tokens: 10\n    maxTokens: 20\n")
    assert folder.findings("./z.yaml") == [
        "./z.yaml:4:5: error[duplicate-key] agents.a.maxTokens: 'maxTokens' is 'max_tokens' in another spelling, "
        "which is written on line 3. (keep one of them)"
    ]


def test_documents_extend_others_beside_them(folder: Folder) -> None:
    folder.write(
        "base/nanobot.yaml",
        "mcpServers: {fs: {command: ./fs, cwd: data}}\nagents: {a: {model: openai/x, tools: fs}}",
    )
    folder.write("base/agents/b.md", "Hi")
    folder.write("team/x.yaml", "extends: ../base\nagents: {a: {model: openai/y}}")
    config = folder.load("./team/x.yaml")
    assert config.agents["a"].model == "openai/y"
    assert config.mcp_servers["fs"].base_dir == folder.path / "base"
    assert str(config.origins["agents.b"]) == "base/agents/b.md:1:1"


def test_a_circle_of_documents_is_told(folder: Folder) -> None:
    folder.write("a.yaml", "extends: ./b.yaml")
    folder.write("b.yaml", "extends: [a.yaml]")
    (problem,) = folder.findings("./a.yaml")
    assert problem == (
        "b.yaml:1:11: error[extends-cycle] extends: Documents extend each other in a circle: a.yaml → b.yaml → a.yaml."
    )


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("/etc/x.yaml", "must be a path relative"),
        ("https://x/y", "must be a path relative"),
        ("no.yaml", "extends 'no.yaml', which does not exist"),
    ],
)
def test_bad_parents_are_told(folder: Folder, written: str, said: str) -> None:
    folder.write("a.yaml", f"extends: {written}")
    (problem,) = folder.findings("./a.yaml")
    assert "error[bad-extends] extends: " in problem
    assert said in problem


def test_profiles(folder: Folder) -> None:
    folder.write(
        "a.yaml",
        """\
        agents: {a: {model: openai/x}}
        profiles:
          fast: {agents: {a: {model: openai/mini}}}
          cold: {agents: {a: {temperature: 0}}}
        """,
    )
    folder.write("b.yaml", "agents: {b: {}}\nextends: a.yaml")
    assert folder.load("./a.yaml").agents["a"].model == "openai/x"
    agent = folder.load("./a.yaml", profiles=["fast,cold", "none?"]).agents["a"]
    assert (agent.model, agent.temperature) == ("openai/mini", 0)
    assert folder.load("./b.yaml", profiles=["fast"], agent="b").agents["a"].model == "openai/mini"
    assert folder.findings("./a.yaml", profiles=["slow"]) == [
        "./a.yaml:1:1: error[unknown-profile]: There is no profile 'slow'; known: cold, fast."
    ]


def test_relative_folders_of_servers(folder: Folder) -> None:
    folder.write("one/x.yaml", "mcpServers: {fs: {command: fs}}")
    folder.write("two/y.yaml", "mcpServers: {fs: {cwd: data}}")
    assert folder.load("./one/x.yaml").mcp_servers["fs"].base_dir == folder.path / "one"
    server = folder.load("./one/x.yaml", "./two/y.yaml").mcp_servers["fs"]
    assert (server.base_dir, server.cwd) == (folder.path / "two", "data")


def test_loading_raises_all_errors_at_once(folder: Folder) -> None:
    folder.write("a.yaml", "agents:\n  a: {tools: fs}\nmodels: {}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(Selection(sources=["./a.yaml"], env=folder.env, cwd=folder.path))
    assert str(caught.value).splitlines() == [
        "The configuration cannot be used:",
        *folder.findings("./a.yaml"),
    ]
    assert len(folder.findings("./a.yaml")) == 2


def test_a_document_that_cannot_be_read_is_not_blamed_on_others(folder: Folder) -> None:
    folder.write("d/nanobot.yaml", "mcpServers: {fs: [")
    folder.write("d/agents/a.md", "---\ntools: fs\ncolour: red\n---\n")
    assert folder.codes("./d") == ["syntax", "unknown-key"]


def test_two_thousand_agents_and_no_more(folder: Folder) -> None:
    agents = folder.path / "d" / "agents"
    agents.mkdir(parents=True)
    for number in range(2000):
        (agents / f"a{number}.md").write_text(f"---\nname: A {number}\n---\nHi")
    assert len(folder.load("./d").agents) == 2001
    (agents / "b.md").write_text("Hi")
    assert folder.codes("./d") == ["source-error"]
    shutil.rmtree(agents)


def test_the_configuration_cannot_be_changed(folder: Folder) -> None:
    config = folder.load()
    with pytest.raises(TypeError):
        config.agents["x"] = config.default_agent  # type: ignore[index]
    with pytest.raises(AttributeError):
        config.home = Path()  # type: ignore[misc]


def test_a_directory_without_permission_is_told(folder: Folder) -> None:
    folder.write("d/nanobot.yaml", "agents: {a: {}}")
    is_root = os.geteuid() == 0
    (folder.path / "d").chmod(0)
    if is_root:
        os.seteuid(65534)  # root may read everything
    try:
        assert folder.findings("./d") == [
            "./d:1:1: error[source-error]: './d' cannot be read: Permission denied."
        ]
    finally:
        if is_root:
            os.seteuid(0)
        (folder.path / "d").chmod(0o700)


def test_links_in_a_circle_are_no_file(folder: Folder) -> None:
    folder.write("a.yaml", "extends: loop.yaml")
    (folder.path / "loop.yaml").symlink_to("loop.yaml")
    assert folder.codes("./a.yaml") == ["bad-extends"]
    assert folder.codes("./loop.yaml") == ["no-config"]
