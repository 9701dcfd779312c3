"""Sample data for `webhooks up --demo`: three receivers, their endpoints, a few events."""

from __future__ import annotations

import itertools
import json
import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import psycopg
from sqlalchemy import select

from webhooks import endpoints, events, tenants
from webhooks.database_app import open_app
from webhooks.db import connect
from webhooks.models import Endpoint, SigningSecret, Tenant, db
from webhooks.ports import LOCAL
from webhooks.receiver import Behaviour, Receiver
from webhooks.secrets import Keyring, Place
from webhooks.settings import Settings
from webhooks.wakeup import CHANNEL

ACTOR = "webhooks up --demo"
PATTERN = "demo.*"
TYPES = ("demo.invoice.paid", "demo.order.shipped", "demo.user.created")
INTERVAL_S = 3.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sample:
    """An endpoint, known by its description up to the comma, and how its receiver answers."""

    path: str
    description: str
    behaviour: Behaviour
    retry_policy: dict[str, Any] | None = None


SAMPLES = (
    Sample("good", "Demo: good, always answers 200", Behaviour()),
    Sample(
        "flaky",
        "Demo: flaky, fails half the time",
        Behaviour(fail_rate=0.5),
        {"base_s": 2, "factor": 2, "cap_s": 30, "attempts": 8},
    ),
    Sample(
        "dead", "Demo: dead, always answers 500", Behaviour(status=500), {"delays_s": [2, 4, 8]}
    ),
)


def run(settings: Settings, report: Callable[[str], None]) -> None:
    """Receive and emit until interrupted. Endpoints that are there already are used again."""
    keyring = Keyring.parse(settings.keyring)
    with open_app(settings.database_url, "demo") as app:
        app.extensions["webhooks_keyring"] = keyring
        tenant = tenants.find(tenants.DEFAULT)
        if tenant is None:
            raise LookupError("the tenant default is gone")
        for sample in SAMPLES:
            receiver = _serve(tenant, sample, settings, keyring, report)
            threading.Thread(target=receiver.serve_forever, daemon=True).start()
        tenant_id = tenant.id
    for number in itertools.count(1):
        _emit(settings.database_url, tenant_id, number)
        time.sleep(INTERVAL_S)


def _serve(
    tenant: Tenant,
    sample: Sample,
    settings: Settings,
    keyring: Keyring,
    report: Callable[[str], None],
) -> Receiver:
    """The sample's receiver, with the secret of its endpoint, which is made if missing."""
    endpoint = db.session.scalar(
        select(Endpoint).where(
            Endpoint.tenant_id == tenant.id,
            Endpoint.description.startswith(sample.description.partition(",")[0] + ","),
            Endpoint.deleted_at.is_(None),
        )
    )
    receiver = _listen(urlsplit(endpoint.url).port if endpoint else None, sample, report)
    url = f"http://{LOCAL}:{receiver.server_port}/{sample.path}"
    if endpoint is None:
        receiver.secrets = [_register(tenant, sample, settings, keyring, url)]
    else:
        receiver.secrets = _secrets(endpoint, keyring)
        endpoints.update(endpoint, settings, actor=ACTOR, url=url, description=sample.description)
    return receiver


def _listen(port: int | None, sample: Sample, report: Callable[[str], None]) -> Receiver:
    try:
        return Receiver(LOCAL, port or 0, sample.behaviour, report=report)
    except OSError:  # another program took the port meanwhile
        return Receiver(LOCAL, 0, sample.behaviour, report=report)


def _register(
    tenant: Tenant, sample: Sample, settings: Settings, keyring: Keyring, url: str
) -> str:
    _, secret = endpoints.create(
        tenant,
        settings,
        keyring,
        url=url,
        event_types=[PATTERN],
        description=sample.description,
        retry_policy=sample.retry_policy,
        actor=ACTOR,
    )
    assert secret is not None  # noqa: S101 - Standard Webhooks has a shared one
    return secret


def _secrets(endpoint: Endpoint, keyring: Keyring) -> list[str]:
    rows = db.session.scalars(select(SigningSecret).where(SigningSecret.endpoint_id == endpoint.id))
    return [
        keyring.decrypt(
            Place("signing_secrets", row.tenant_id, row.id, "ciphertext"), row.ciphertext
        ).decode()
        for row in rows
    ]


def _emit(database_url: str, tenant_id: UUID, number: int) -> None:
    payload = {"number": number, "amount": f"{random.randint(100, 9999) / 100:.2f}"}  # noqa: S311 - example data
    try:
        with connect(database_url, "demo") as connection:
            events.emit(
                connection,
                tenant_id,
                TYPES[number % len(TYPES)],
                json.dumps(payload).encode(),
                None,
            )
            connection.execute(f"NOTIFY {CHANNEL}")
    except psycopg.Error as error:
        log.warning("no event this time, the database is away: %s", error)
