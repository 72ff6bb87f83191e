"""What the official conformance suite looks for first: a host before a server of its own era."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.run import SERVER_LEGS, Leg, run_legs
from tests.conformance.suite import SuiteMissing, find_node

pytestmark = pytest.mark.node


@pytest.mark.parametrize("leg", SERVER_LEGS[:2], ids=[leg.revision for leg in SERVER_LEGS[:2]])
def test_the_host_passes_the_conformance_suite(leg: Leg, tmp_path: Path) -> None:
    try:
        node = find_node()
    except SuiteMissing as e:
        pytest.skip(f"it {e}")  # in CI too: `make conformance` runs it there
    [verdict] = run_legs(node, [leg], tmp_path)
    assert verdict.unexpected == ()
