"""What the page on authentication shows can be used as it stands there."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

import pytest

from nanobot.config.load import Selection, load_config
from nanobot.server.auth.assembly import is_protected

PAGE = (Path(__file__).parents[2] / "docs" / "authentication.md").read_text()
DOCUMENTS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)
COMMANDS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda text: text.split("\n")[1].strip())
def test_each_document_of_the_page_protects_the_server(document: str, tmp_path: Path) -> None:
    (tmp_path / "nanobot.yaml").write_text(document)
    selection = Selection(sources=("./nanobot.yaml",), env={"HOME": str(tmp_path)}, cwd=tmp_path)
    assert is_protected(load_config(selection))


def test_the_commands_of_the_page_make_a_key_and_its_digest() -> None:
    (command,) = COMMANDS
    shown = subprocess.run(
        ["sh", "-c", f'{command}\nprintf %s "$key"'], capture_output=True, text=True, check=True
    )
    digest, key = shown.stdout.split("\n")
    assert key.startswith("nb-")
    assert digest == hashlib.sha256(key.encode()).hexdigest()
