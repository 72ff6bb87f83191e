"""The environment that references are looked up in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot.config.diagnostics import Diagnostics
from nanobot.config.environment import parse_env_file, resolve_variables
from nanobot.config.model import EnvVar

if TYPE_CHECKING:
    from conftest import Folder


def test_later_sources_of_variables_win(folder: Folder) -> None:
    folder.env |= {"A": "process", "B": "process", "C": "process", "PWD": "/stale"}
    folder.write("nanobot.env", "B=file\nC=file\n")
    env = folder.load(set_env=["C=given", "D=x=y"]).env
    assert (env["A"], env["B"], env["C"], env["D"]) == ("process", "file", "given", "x=y")
    assert env["PWD"] == env["CWD"] == str(folder.path)
    assert env["NANOBOT_MCP"] == "true"


def test_an_empty_environment_takes_only_what_is_named(folder: Folder) -> None:
    folder.env |= {"A": "process", "B": "process"}
    assert "A" not in folder.load(set_env=["B"], empty_env=True).env
    assert folder.load(set_env=["B"], empty_env=True).env["B"] == "process"
    assert folder.findings(set_env=["NONE"]) == [
        "(command line): warning[unset-variable]: `-e NONE`: the variable is not set; it is skipped."
    ]


def test_a_named_env_file_must_exist(folder: Folder) -> None:
    assert folder.findings(env_file="x.env") == [
        "x.env:1:1: error[source-error]: The file 'x.env' does not exist."
    ]


def test_lines_of_an_env_file() -> None:
    text = '# c\n\nexport A = x \r\nB="q\\n\\"z\\\\"\nC=\'r\\n\'\nD=a # b\nnonsense\nE=\n'
    found = Diagnostics()
    assert parse_env_file(text, "n.env", found) == {
        "A": " x",
        "B": 'q\n"z\\',
        "C": "r\\n",
        "D": "a # b",
        "E": "",
    }
    assert [str(d) for d in found.sorted()] == [
        "n.env:7:1: warning[syntax]: This line is not NAME=value; it is skipped."
    ]


def test_declared_variables_get_their_defaults(folder: Folder) -> None:
    folder.write("x.yaml", "env: {REGION: {optional: true, default: eu, options: [eu, us]}, KEY: Your key}")
    config = folder.load("./x.yaml")
    assert config.env["REGION"] == "eu"
    assert config.env_vars["KEY"].description == "Your key"
    assert folder.load("./x.yaml", set_env=["REGION=us"]).env["REGION"] == "us"


def test_all_missing_and_invalid_variables_are_told_together() -> None:
    declared = (
        EnvVar(name="A"),
        EnvVar(name="B", optional=True, options=("x",)),
        EnvVar(name="C", use_bearer_token=True),
        EnvVar(name="D", default="hint"),
        EnvVar(name="E"),
    )
    definitions = {variable.name: variable for variable in declared}
    resolved = resolve_variables(definitions, {"B": "y", "http:bearer-token": "t", "E": ""})
    assert [variable.name for variable in resolved.missing] == ["A", "D", "E"]
    assert [variable.name for variable in resolved.invalid] == ["B"]
    assert resolved.values == {"C": "t"}


def test_the_default_model_can_come_from_the_environment(folder: Folder) -> None:
    folder.env["NANOBOT_DEFAULT_MODEL"] = " openai/x "
    assert folder.load().default_model == "openai/x"
    assert folder.load(default_model="demo").default_model == "demo"
