"""`nanobot policy explain`; that the page on approvals tells the truth is tested with all pages."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.peers.programs import nanobot

PAGE = (Path(__file__).parents[2] / "docs" / "approvals.md").read_text(encoding="utf-8")
[DOCUMENT] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_the_decision_as_json(tmp_path: Path) -> None:
    (tmp_path / "nanobot.yaml").write_text(DOCUMENT)
    call = ("main", "Read", '{"file_path": "x"}')
    done = nanobot("policy", "explain", "--json", *call, "-c", str(tmp_path / "nanobot.yaml"), home=tmp_path)
    told = json.loads(done.stdout)
    assert (told["verdict"], told["rule"].rpartition("/")[2]) == ("run", "nanobot.yaml:9:11")


def test_what_cannot_be_explained_is_said(tmp_path: Path) -> None:
    (tmp_path / "nanobot.yaml").write_text(DOCUMENT)
    config = ("-c", str(tmp_path / "nanobot.yaml"))
    for words, said in (
        (("nobody", "bash"), "no agent 'nobody'"),
        (("main", "hammer"), "neither a built-in tool nor an agent"),
        (("main", "bash", "ls"), "not JSON"),
        (("main", "bash", "[]"), "must be a JSON object"),
    ):
        done = nanobot("policy", "explain", *words, *config, home=tmp_path)
        assert done.returncode == 2
        assert said in done.stderr
