"""No byte to a denied address, in a network where every address would answer."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from tests.conformance import dial
from tests.hostile_urls import REFUSED
from tests.support import require

UNSHARE = ["unshare", "--map-root-user", "--net"]


@pytest.mark.parametrize("kind", ["curl", "requests"])
def test_no_connection_to_a_denied_address_is_tried(kind: str) -> None:
    """Promises 2 and 9: literals, names, mixed and forged answers, and every hostile URL as if
    it stood in the database, counted by the kernel (W031, W032, W034).

    The same kernel counts the connections to addresses that are allowed, or opened by the
    operator; his list opens everything but what gives credentials away.
    """
    require(shutil.which("unshare") and shutil.which("ip"), "unshare or ip", "util-linux, iproute2")
    allowed = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
    require(allowed.returncode == 0, "a network namespace", f"run as root ({allowed.stderr})")
    done = subprocess.run(
        [*UNSHARE, sys.executable, "-m", "tests.conformance.dial", kind],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

    found = json.loads(done.stdout)
    hostile = found.pop("hostile")
    assert hostile.keys() == {"blocked_address", "invalid_url"}
    assert sum(hostile.values()) == sum(map(len, REFUSED.values()))
    ways = 2 * (4 * len(dial.DENIED) + 2 * len(dial.METADATA))
    assert found == {
        "denied": {"blocked_address": ways},
        "connects to denied": 0,
        "allowed": ["200", "200", "200", "200"],
        "connects to allowed": 4,
    }
