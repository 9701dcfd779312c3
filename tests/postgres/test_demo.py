"""The sample endpoints of `webhooks up --demo`."""

from __future__ import annotations

import psycopg
import pytest
from flask import Flask

from tests.queue import one
from webhooks import demo, tenants
from webhooks.models import Tenant
from webhooks.secrets import Keyring
from webhooks.settings import Settings

FLAKY = next(sample for sample in demo.SAMPLES if sample.path == "flaky")


@pytest.mark.parametrize("sample", demo.SAMPLES, ids=lambda sample: sample.path)
def test_a_description_says_how_its_receiver_answers(sample: demo.Sample) -> None:
    """Half of the answers fail by chance, not every other one."""
    words = {
        "good": (0.0, 200, "always answers 200"),
        "flaky": (0.5, 200, "fails half the time"),
        "dead": (0.0, 500, "always answers 500"),
    }
    behaviour = sample.behaviour
    fail_rate, status, said = words[sample.path]
    assert (behaviour.fail_rate, behaviour.status) == (fail_rate, status)
    assert sample.description.endswith(said)


def test_an_endpoint_of_an_earlier_start_is_used_again(
    app: Flask, settings: Settings, connection: psycopg.Connection
) -> None:
    """Also when its description was worded otherwise then, which is brought up to date."""
    keyring = Keyring.parse(settings.keyring)
    with app.app_context():
        tenant = tenants.find(tenants.DEFAULT)
        assert isinstance(tenant, Tenant)
        demo._serve(tenant, FLAKY, settings, keyring, lambda _line: None).server_close()
        connection.execute(
            "UPDATE webhooks.endpoints SET description = 'Demo: flaky, as it was worded then'"
        )
        demo._serve(tenant, FLAKY, settings, keyring, lambda _line: None).server_close()

    assert one(connection, "SELECT count(*) FROM webhooks.endpoints") == 1
    assert one(connection, "SELECT description FROM webhooks.endpoints") == FLAKY.description
