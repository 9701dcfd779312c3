"""The whole API against its own description: hostile input, answers as described, no 5xx."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stack import Stack

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

SCHEMATHESIS = Path(sys.executable).parent / "schemathesis"
# Not unsupported_method: /events/batch is what /events/{event_id} would be for another method,
# and answers 404 to that; test_app.py asks for 405 elsewhere.
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance,ignored_auth"
)


def test_every_route_answers_as_it_is_described(database_url: str, tmp_path: Path) -> None:
    """Whatever is sent: a described status and body, in the described form; and no key, no way."""
    with Stack(database_url, {"WEBHOOKS_WRITES_PER_MINUTE": "0"}) as stack:
        stack.start_web()
        done = subprocess.run(
            [
                str(SCHEMATHESIS), "run", f"{stack.base_url}/api/v1/openapi.json",
                "--header", f"Authorization: Bearer {stack.key}", "--checks", CHECKS,
                "--seed", "7", "--max-examples", "12", "--phases", "examples,coverage,fuzzing",
                "--request-timeout", "15", "--continue-on-failure", "--no-color",
                "--generation-database", "none", "--warnings", "off",
                # It waits ten seconds for an attempt, and no worker runs.
                "--exclude-path", "/endpoints/{endpoint_id}/test",
            ],
            capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)},
        )  # fmt: skip

    assert done.returncode == 0, done.stdout[-60_000:] + done.stderr[-2_000:]
