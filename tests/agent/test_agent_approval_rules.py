"""What rules say about calls: every matcher, paths and command lines that try to get past them."""

from __future__ import annotations

import os
import string
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nanobot.agent.approval.decision import Called, decide
from nanobot.config.approvals import (
    AllOf,
    AnyOf,
    Approvals,
    Contains,
    ContainsAll,
    Equals,
    In,
    Matcher,
    Matches,
    Rule,
    StartsWith,
)
from nanobot.config.places import Reference

SYSTEM = "nanobot.system"


def rule(tool: str, allow: bool, server: str = SYSTEM, **when: Matcher) -> Rule:
    return Rule(target=Reference(server, tool or None), allow=allow, when=when)


def verdict(
    rules: list[Rule], tool: str, server: str = SYSTEM, folder: Path | None = None, **arguments: Any
) -> str:
    called = Called(server=server, tool=tool, arguments=arguments, folder=folder)
    return decide([Approvals(rules=tuple(rules))], called).verdict


MATCHERS: list[tuple[Matcher, list[Any], list[Any]]] = [
    (Equals("a"), ["a"], ["A", "ab", None, ["a"]]),
    (Equals(1), [1, 1.0], [True, "1", 2]),
    (Equals(True), [True], [1, "true"]),
    (Equals(None), [None], [0, False, ""]),
    (Equals({"a": [1, {"b": None}]}), [{"a": [1.0, {"b": None}]}], [{"a": [1]}, {"a": [1, {}], "c": 1}]),
    (In(("a", 2, None)), ["a", 2.0, None], ["b", False, 3]),
    (In(()), [], ["a", None]),
    (StartsWith("ab"), ["ab", "abc"], ["a", "xab", 1, ["ab"]]),
    (StartsWith(""), ["", "x"], [None, 0]),
    (Matches("b+c"), ["abbcd"], ["ac", 5, ["bc"]]),
    (Matches("^b$"), ["b"], ["ab", "b\nc"]),
    (Contains("b"), ["abc", ["a", "b"]], ["ac", ["abc"], {"b": 1}, 5]),
    (Contains(1), [[1.0, 2]], ["1", [True]]),
    (ContainsAll(("a", "b")), ["ab", ["b", "x", "a"]], ["a", ["a"], 5]),
    (ContainsAll(()), ["", [], "x"], [None, 5, {}]),
    (AnyOf((Equals("a"), StartsWith("b"))), ["a", "bx"], ["c", 1]),
    (AllOf((Contains("a"), Contains("b"))), ["ab"], ["a", "b"]),
    (AllOf((AnyOf((Equals("x"), Equals("y"))), Matches("y"))), ["y"], ["x"]),
]


@pytest.mark.parametrize(("matcher", "yes", "no"), MATCHERS)
def test_every_matcher(matcher: Matcher, yes: list[Any], no: list[Any]) -> None:
    for allow, expected in ((True, "run"), (False, "refuse")):
        rules = [rule("t", allow, server="s", x=matcher)]
        assert [verdict(rules, "t", "s", x=value) for value in yes] == [expected] * len(yes)
        assert [verdict(rules, "t", "s", x=value) for value in no] == ["ask"] * len(no)


def test_a_rule_needs_every_argument_it_names_and_null_is_one() -> None:
    rules = [rule("close", True, server="tracker", labels=Contains("bot"), owner=Equals(None))]
    assert verdict(rules, "close", "tracker", labels=["bot"], owner=None) == "run"
    assert verdict(rules, "close", "tracker", labels=["bot"]) == "ask"
    assert verdict(rules, "open", "tracker", labels=["bot"], owner=None) == "ask"
    assert verdict([rule("", True, server="tracker")], "open", "tracker") == "run"
    assert verdict([rule("", True, server="tracker")], "open", "other") == "ask"


def test_the_first_rule_that_matches_decides() -> None:
    push = rule("bash", False, command=Contains("push --force"))
    git = rule("bash", True, command=StartsWith("git "))
    assert verdict([push, git], "bash", command="git push --force") == "refuse"
    assert verdict([git, push], "bash", command="git push --force") == "run"
    assert verdict([push, git], "bash", command="git status -s") == "run"
    assert verdict([push, git], "bash", command="make") == "ask"


def test_levels_a_refusal_stands_and_the_innermost_opinion_counts() -> None:
    call = Called(server="s", tool="t", arguments={})
    yes = Approvals(rules=(rule("t", True, server="s"),))
    no = Approvals(rules=(rule("t", False, server="s"),))
    silent = Approvals()
    assert decide([], call).verdict == "run"
    assert decide([None], call).verdict == "run"
    assert decide([silent], call).verdict == "ask"
    assert decide([no, yes], call).verdict == "refuse"
    assert decide([yes, no], call).verdict == "refuse"
    assert decide([yes, silent], call).verdict == "run"
    assert decide([silent, None, yes], call).verdict == "run"


ALLOWED = [
    rule("bash", True, command=AnyOf((StartsWith("git status"), Matches("^ls( |$)"), Contains("pytest")))),
    rule("read", True, file_path=StartsWith("/srv/app/")),
    rule("write", True, file_path=StartsWith("build/")),
]


@pytest.mark.parametrize(
    "command",
    [
        "git status; rm -r x",
        "git status\nrm -r x",
        "git status && rm -r x",
        "git status & rm -r x",
        "git status | sh",
        "git status `rm x`",
        "git status $(rm x)",
        "git status > /etc/passwd",
        "git status < /etc/passwd",
        "git status <(rm x)",
        "git status ';' rm",
        "ls; rm x",
        "ls || rm x",
        "ls\nrm x",
        "ls $(rm x)",
        "rm x; pytest",
        "rm x #\npytest",
        " git status",
        "GIT status",
    ],
)
def test_a_command_line_that_does_more_is_not_allowed_by_its_beginning(command: str) -> None:
    assert verdict(ALLOWED, "bash", command=command) == "ask"


ALLOWED_WIDELY = [
    rule(
        "bash",
        True,
        command=AnyOf(
            (
                StartsWith("echo "),
                StartsWith("git status"),
                StartsWith("git log | head"),
                StartsWith("make &"),
                StartsWith("cd x &&"),
                StartsWith("cat docs/"),
                StartsWith("ls"),
                Matches("git log .*"),
                Contains("pytest"),
                ContainsAll(("make", "--dry-run")),
                Matches(r"^echo '[^']*;.*'.*$"),
                Matches(r"^a \| .*$"),
                Matches(r"^(x \| y|x .*)$"),
                Matches(r"^b[\W]c (.)d\1$"),
                Matches(r"^b[;&|]e$"),
                Matches(r"^b[ -~]f$"),
                Matches(r"^make\s+test$"),
            )
        ),
    )
]


@pytest.mark.parametrize(
    "command",
    [
        r"echo ${x:=$'\x60id\x60'}${x@P}",
        "echo $x",
        "echo $[1]",
        "echo $'x'",
        'echo $"x"',
        "echo $((1))",
        "echo `id`",
        'echo "`id`"',
        "echo <(id)",
        "echo !!",
        "echo *",
        "echo ?",
        "echo [a]",
        "echo {a,b}",
        "echo ~/x",
        "echo x=~/y",
        "echo a;id",
        "echo a&id",
        "echo a|id",
        "echo a>b",
        "echo a<b",
        "echo a # b",
        "echo a\\ b",
        "echo a\x00b",
        "echo a\u2028b",
        "echo a\u00a0b",
        "git status\tx",
        "git status\rid",
        "git status()",
        "git statusx",
        "git log | head | sh",
        "git log | header",
        "make & rm x",
        "cd x && rm x",
        "git log --all; id",
        "rm -rf / git log x",
        "git log $x",
        "lsof",
        'ls"of"',
        "cat docs/$x",
        "LD_PRELOAD=x pytest",
        "A+=x pytest",
        "make x # --dry-run",
        "echo 'a;' evil ''",
        "a | b | c",
        "x z | y",
        "b;c ;d;",
        "b;e",
        "b;f",
        "make\ntest",
        "echo " + "a" * 4000,
    ],
)
def test_what_a_shell_makes_something_of_is_allowed_only_where_a_rule_spells_it_out(command: str) -> None:
    assert verdict(ALLOWED_WIDELY, "bash", command=command) == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "echo hello, world",
        "echo 'grüße — €'",
        "git status",
        'git status -s "a b"',
        "git log -3 --format=%h",
        "git log HEAD~2",
        "git log HEAD^^ v1~",
        "git log | head -3",
        "cat docs/a.md",
        "ls -la src/a.py",
        "python -m pytest -q tests/x.py",
        "make all --dry-run",
        "make &",
        "a | b",
    ],
)
def test_plain_words_are_allowed_behind_what_a_rule_says(command: str) -> None:
    assert verdict(ALLOWED_WIDELY, "bash", command=command) == "run"


def test_no_line_that_is_allowed_runs_anything_else(tmp_path: Path) -> None:
    """Every sign, alone and in pairs, around a program that must not run, put to a real shell."""
    signs = string.punctuation + " \t\n\r\x01\u00a0a"
    trap = tmp_path / "trap"
    trap.write_text("#!/bin/sh\ntouch sprung\n")
    trap.chmod(0o755)
    rules = [rule("bash", True, command=AnyOf((StartsWith("echo "), Matches("echo .*"))))]
    middles = [*signs, *(a + b for a in signs for b in signs)]
    lines = [f"echo {middle}./trap{end}" for middle in middles for end in ("", ")", "`", "}", "'", '"')]
    allowed = [line for line in lines if verdict(rules, "bash", command=line) == "run"]
    assert allowed
    script = "".join(f"({line}\n)\n" for line in allowed if line.count("'") % 2 == line.count('"') % 2 == 0)
    subprocess.run(["bash", "-c", script], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    assert not (tmp_path / "sprung").exists()
    subprocess.run(["bash", "-c", "echo a;./trap"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    assert (tmp_path / "sprung").exists()  # which it would have been


def test_a_sign_that_stands_in_the_rule_is_meant() -> None:
    piped = [rule("bash", True, command=StartsWith("git log | head"))]
    assert verdict(piped, "bash", command="git log | head -3") == "run"
    assert verdict(piped, "bash", command="git log | head; rm x") == "ask"
    either = [rule("bash", True, command=Matches("^(git|ls) "))]
    assert verdict(either, "bash", command="git log") == "run"
    assert verdict(either, "bash", command="git log | sh") == "ask"
    escaped = [rule("bash", True, command=Matches(r"^ls \| head$"))]
    assert verdict(escaped, "bash", command="ls | head") == "run"
    ruled_out = [rule("bash", True, command=Matches(r"^git [^\;\&\|]*"))]
    assert verdict(ruled_out, "bash", command="git status") == "run"
    assert verdict(ruled_out, "bash", command="git status; rm -rf /") == "ask"
    exact = [rule("bash", True, command=In(("make && make test",)))]
    assert verdict(exact, "bash", command="make && make test") == "run"


@pytest.mark.parametrize(
    "command",
    [
        "git push --force",
        "git  push   --force",
        "git push '--force'",
        'git "push" --force',
        "git pu\\sh --force",
        "git push \\\n --force",
        "cd x && git push --force",
        "true;git push --force",
        "true\ngit push --force",
        "A=1 git push --force",
        "/usr/bin/git push --force",
        "sudo git push --force",
        "bash -c 'git push --force'",
        "sh -c \"sh -c 'git push --force'\"",
        "echo $(git push --force)",
        "git${IFS}push${IFS}--force",
        "(git push --force)",
        "env -i git push --force",
        "sudo -u bob git push --force",
        "timeout 5 git push --force",
        "env A=1 git push --force",
        "nice -n 5 git push --force",
        "flock /tmp/x git push --force",
        "ls | xargs -n 1 git push --force",
        "true " + "x" * 20_001 + "; git push --force",
        "true " + "-a " * 6000 + "; git push --force",
    ],
)
def test_a_refused_command_is_refused_however_it_is_dressed(command: str) -> None:
    for matcher in (Contains("push --force"), StartsWith("git push --force")):
        rules = [rule("bash", False, command=matcher), rule("bash", True)]
        assert verdict(rules, "bash", command=command) == "refuse", matcher


DRESSED = r"""
bash -c 'cu""rl'
eval cu\\rl x
eval cu\\\\rl x
eval eval cu\\\\rl x
bash -c 'bash -c "bash -c \"bash -c \\\"curl x\\\"\""'
env -S'curl x'
env -iS 'curl x'
env --split-string='curl x'
env -S 'nice\_curl\_x'
find . -exec curl {} \;
nohup curl
timeout 5 curl
builtin command curl
exec -a x curl
sudo -u x /usr/bin/curl
nice -n5 curl
stdbuf -oL curl
setsid curl
python -c 'import os; os.system("curl x")'
python -c 'import subprocess; subprocess.run(["curl", "x"])'
python -c 'import os; os.system("cu\x72l x")'
sh -xc 'curl x'
bash <<< 'curl x'
. <(echo curl x)
source /dev/stdin <<< "cu''rl x"
{curl,http://x}
{curl,-H,'a: b'}
c{u,}rl x
cu{r..r}l x
{c..c..1}url x
cu$@rl x
cu${x}rl x
cu$()rl x
c$1url x
cu$(: "(")rl x
cu``rl x
cu${x:-r}l x
${x:-curl} y
x=curl; $x y
x='curl y'; eval "$x"
export x=cu; y=${x}rl; $y z
$'cu\x72l' x
$'\143url' x
$'c\u0075rl' x
cu[r]l x
it"'"s; bash -c "cu''rl '"
ssh h 'curl x'
awk 'BEGIN{system("curl x")}'
perl -e 'exec "curl","x"'
if true; then curl x; fi
f() { curl x; }; f
! curl
trap curl EXIT
alias ll=curl
echo "$(cu''rl x)"
echo "`cu\rl x`"
cat <(curl x)
<x curl
2>&1 curl
curl>y
printf 'cu\x72l\tx' | sh
echo -e 'cu\0162l x' | sh
bash -c $'cu\\x72l'
eval $'\\143url'
tar --to-command=curl -xf x
git -c alias.x='!curl x' x
case x in x) curl;; esac
"""


@pytest.mark.parametrize(
    "command",
    [
        *DRESSED.strip().splitlines(),
        "bash -c 'cu\"\"rl\thttp://x'",
        "bash -c 'cu\\\nrl x'",
        "bash <<E\ncurl x\nE",
        " ".join(["env", *(f"A{i}=1" for i in range(300)), "curl"]),
        "{a,b}" * 700,
        "$(" * 100 + "'\"" * 100 + "\\" * 100 + ";" + "{c,d}" * 50,
    ],
)
def test_a_refused_command_is_found_in_whatever_runs_it(command: str) -> None:
    rules = [rule("bash", False, command=StartsWith("curl")), rule("bash", True)]
    assert verdict(rules, "bash", command=command) == "refuse"


@pytest.mark.parametrize(
    "command",
    [
        "git push >x --force",
        "git push 2>x --force",
        'git push "" --force',
        "git push $x --force",
        "git ${x:-push} --force",
        "git push {--force,origin}",
        "git push --force # at once",
        "bash -c 'git push --force # at once'",
    ],
)
def test_what_stands_between_words_does_not_hide_them(command: str) -> None:
    for matcher in (Contains("push --force"), Matches("push --force"), StartsWith("git push --force")):
        rules = [rule("bash", False, command=matcher), rule("bash", True)]
        assert verdict(rules, "bash", command=command) == "refuse", matcher
    exact = [rule("bash", False, command=Equals("git push --force")), rule("bash", True)]
    assert verdict(exact, "bash", command="sudo git push --force # at once") == "refuse"


@pytest.mark.parametrize(
    "command",
    [
        "git log --format='%h' | head",
        'for f in *.py; do echo "$f"; done',
        "awk '{print $1, $2}' x",
        "cat > x.json <<E\n" + '{"a": {"b": [1, {"c": 3}]}, "d": {"e": "f"}}\n' * 10 + "E",
        "python - <<'E'\nprint({'a': 1, 'b': [f'{x}' for x in range(3)]})\nE",
        r"sed -i 's/\(a\)/\1/g' x",
        'for i in {1..10}; do make -j$((i+1)) CFLAGS="-O2 ${X:-y}"; done',
        "-" + "a" * 3000,
    ],
)
def test_a_line_without_the_command_is_not_refused(command: str) -> None:
    rules = [rule("bash", False, command=StartsWith("curl")), rule("bash", True)]
    assert verdict(rules, "bash", command=command) == "run"


def test_paths_are_where_they_lead(tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    os.symlink("/etc", tmp_path / "build" / "link")
    assert verdict(ALLOWED, "read", file_path="/srv/app/x") == "run"
    for path in ("/srv/app/../../etc/passwd", "/srv/app/", "/srv/application", "srv/app/x", "/srv/app/.."):
        assert verdict(ALLOWED, "read", folder=tmp_path, file_path=path) == (
            "run" if path == "/srv/app/" else "ask"
        )
    assert verdict(ALLOWED, "write", folder=tmp_path, file_path="build/x") == "run"
    assert verdict(ALLOWED, "write", folder=tmp_path, file_path=str(tmp_path / "build/x")) == "run"
    assert verdict(ALLOWED, "write", folder=tmp_path, file_path="./build/../build/x") == "run"
    for path in ("build/../x", "build/link/passwd", "/build/x", "build"):
        assert verdict(ALLOWED, "write", folder=tmp_path, file_path=path) == "ask"


def test_a_refused_path_is_refused_by_every_way_there(tmp_path: Path) -> None:
    os.symlink("/etc", tmp_path / "innocent")
    rules = [rule("read", False, file_path=StartsWith("/etc/")), rule("read", True)]
    for path in ("/etc/passwd", "/etc/../etc/passwd", "innocent/passwd", "//etc/passwd"):
        assert verdict(rules, "read", folder=tmp_path, file_path=path) == "refuse"
    assert verdict(rules, "read", folder=tmp_path, file_path="mine") == "run"


def test_a_refused_folder_is_refused_by_its_own_name_and_from_above(tmp_path: Path) -> None:
    (tmp_path / "secret" / "deep").mkdir(parents=True)
    (tmp_path / "src").mkdir()
    os.symlink(tmp_path / "secret", tmp_path / "innocent")
    for matcher in (
        StartsWith("secret/"),
        Equals("secret"),
        In(("secret/",)),
        StartsWith("innocent/"),
        StartsWith(str(tmp_path / "src/../secret/")),
        AllOf((StartsWith("secret/"), Matches("."))),
        AnyOf((StartsWith("elsewhere/"), StartsWith("secret/"))),
    ):
        for tool in ("grep", "glob"):
            rules = [rule(tool, False, path=matcher), rule(tool, True)]
            for path in ("secret", "secret/", "./secret", "innocent", "SECRET", ".", "", "/", ".."):
                assert verdict(rules, tool, folder=tmp_path, path=path, pattern="x") == "refuse", path
            assert verdict(rules, tool, folder=tmp_path, pattern="x") == "refuse"
            assert verdict(rules, tool, folder=tmp_path, path="src", pattern="x") == "run"
    rules = [rule("bash", False, workdir=StartsWith("secret/")), rule("bash", True)]
    assert verdict(rules, "bash", folder=tmp_path / "secret", command="ls", workdir=".") == "run"
    assert verdict(rules, "bash", folder=tmp_path, command="ls", workdir="secret") == "refuse"
    assert verdict(rules, "bash", folder=tmp_path, command="ls") == "run"
    whole = [rule("bash", False, workdir=Equals(str(tmp_path))), rule("bash", True)]
    assert verdict(whole, "bash", folder=tmp_path, command="ls") == "refuse"


def test_a_path_that_is_not_given_allows_nothing(tmp_path: Path) -> None:
    rules = [rule("grep", True, path=StartsWith(str(tmp_path)))]
    assert verdict(rules, "grep", folder=tmp_path, path="x", pattern="x") == "run"
    assert verdict(rules, "grep", folder=tmp_path, pattern="x") == "ask"


def test_spellings_of_one_path_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    rules = [rule("read", False, file_path=StartsWith("~/Geheimnisse f\u00fcr/")), rule("read", True)]
    for path in (
        "Geheimnisse f\u00fcr/x",
        "Geheimnisse fu\u0308r/x",
        "GEHEIMNISSE FU\u0308R/x",
        "./a/..//Geheimnisse f\u00fcr/x/",
        str(tmp_path / "Geheimnisse f\u00fcr/x"),
    ):
        assert verdict(rules, "read", folder=tmp_path, file_path=path) == "refuse", path
    allowed = [rule("read", True, file_path=StartsWith("~/mine/"))]
    assert verdict(allowed, "read", folder=tmp_path, file_path="mine/x") == "run"
    for path in ("Mine/x", "~/mine/x", "file:///mine/x", f"file://{tmp_path}/mine/x"):
        assert verdict(allowed, "read", folder=tmp_path, file_path=path) == "ask", path


def test_what_can_be_no_path_is_refused_and_never_allowed(tmp_path: Path) -> None:
    for path in ("a\0b", "a\ud800b", "a/" * 500_000):
        assert verdict([rule("read", False, file_path=StartsWith("x"))], "read", file_path=path) == "refuse"
        assert verdict([rule("read", True, file_path=StartsWith("/"))], "read", file_path=path) == "ask"


def test_texts_for_servers_may_be_paths_and_addresses_in_other_spellings() -> None:
    refused = [rule("fetch", False, "s", at=StartsWith("/etc/")), rule("fetch", True, "s")]
    for text in (
        "/etc",
        "/etc/passwd",
        "//etc/passwd",
        "/./etc/passwd",
        "/srv/../etc/passwd",
        "/srv/..\\etc/passwd",
        "/%65tc/passwd",
        "/srv%2f..%2fetc%2fpasswd",
        "file:///etc/passwd",
        "file://%2fetc/passwd",
        "/ETC/passwd",
    ):
        assert verdict(refused, "fetch", "s", at=text) == "refuse", text
    for text in ("/srv/etc/x", "etc", "/et", "", "a b"):
        assert verdict(refused, "fetch", "s", at=text) == "run", text
    for matcher in (Equals("secret"), Contains("secret"), Matches("^secret$"), StartsWith("secret")):
        rules = [rule("glob", False, pattern=matcher), rule("glob", True)]
        assert verdict(rules, "glob", pattern="x/../secret") == "refuse"

    allowed = [
        rule("fetch", True, "s", at=AnyOf((StartsWith("https://a/b/"), Contains("/b/"), Matches("/b/"))))
    ]
    assert verdict(allowed, "fetch", "s", at="https://a/b/c..d") == "run"
    for text in (
        "https://a/b/../c",
        "https://a/b/%2e%2e/c",
        "https://a/b/%2E.%2fc",
        "https://a/b/..",
        "/b/..\\c",
    ):
        assert verdict(allowed, "fetch", "s", at=text) == "ask", text
    whole = [rule("fetch", True, "s", at=In(("../x",)))]
    assert verdict(whole, "fetch", "s", at="../x") == "run"


def test_an_expression_that_never_ends_allows_nothing_and_refuses() -> None:
    rules = [rule("t", True, server="s", x=Matches("^(a+)+$"))]
    assert verdict(rules, "t", "s", x="a" * 5000 + "b") == "ask"
    text: Any = "a" * 3800 + "! drop table x"
    for server, tool, name in (("s", "t", "x"), (SYSTEM, "bash", "command"), (SYSTEM, "read", "file_path")):
        endless = Matches(r"^(\w+\s?)+;|drop table")
        rules = [rule(tool, False, server, **{name: endless}), rule(tool, True, server)]
        assert verdict(rules, tool, server, **{name: text}) == "refuse"
