"""The limit of what goes to one host at a time, over endpoints of all tenants."""

from __future__ import annotations

from urllib.parse import urlsplit

import psycopg
from flask import Flask

from tests.dispatching import dispatching, make_target
from tests.endpoints import create
from tests.queue import emit, make_endpoint, make_endpoints, one, register, statuses
from tests.recorder import Recorder
from tests.stack import eventually
from webhooks import deliveries, endpoints, workers
from webhooks.deliveries import NO_CURSOR, HostRoom
from webhooks.settings import Settings

VICTIM = "https://victim.example"
URLS = [
    "https://a.example/", "https://a.example:8443/x?y=1#z", "http://a.example/other",
    "https://b.example/", "https://a.example.b.example/", "http://127.0.0.1:9000/hook",
    "http://127.0.0.1/", "http://[::1]:9000/hook", "http://[::1]/", "https://xn--bcher-kva.example/",
]  # fmt: skip


def host(connection: psycopg.Connection, url: str) -> int:
    number: int = one(connection, "SELECT webhooks.host_of(%s)", url)
    return number


def test_a_host_is_what_stands_in_the_url(connection: psycopg.Connection) -> None:
    """Two URLs have one number exactly if the standard library reads the same host in both."""
    numbers = [host(connection, url) for url in URLS]
    for url, number in zip(URLS, numbers, strict=True):
        same = {other for other, n in zip(URLS, numbers, strict=True) if n == number}
        assert same == {u for u in URLS if urlsplit(u).hostname == urlsplit(url).hostname}


def test_endpoints_of_many_tenants_share_one_host(connection: psycopg.Connection) -> None:
    """A claim takes no more for a victim than the limit, whoever's endpoints have it (row 60)."""
    connection.execute("INSERT INTO webhooks.tenants (key, name) VALUES ('other', 'Other')")
    make_endpoints(connection, 20, url=VICTIM)
    make_endpoints(connection, 20, url=f"{VICTIM}:8443", tenant="other")
    free = make_endpoint(connection, url="https://free.example/")
    for tenant in ("default", "other"):
        connection.execute("SELECT webhooks.emit(%s, 'a', '{}')", [tenant])
    worker_id = register(connection)

    batch = deliveries.claim(connection, worker_id, NO_CURSOR, 500, hosts=HostRoom(7))

    victims = [claim for claim in batch.claims if claim.host == host(connection, VICTIM)]
    assert len(victims) == 7
    assert [claim.endpoint_id for claim in batch.claims if claim not in victims] == [free]


def test_a_full_host_hides_nobody(connection: psycopg.Connection) -> None:
    """However many lanes of it come first, one look finds the lane that comes after them."""
    make_endpoints(connection, 150, url=VICTIM)
    free = make_endpoint(connection, url="https://free.example/")
    emit(connection)
    full = HostRoom(7, {host(connection, VICTIM): 7})

    batch = deliveries.claim(connection, register(connection), NO_CURSOR, 500, hosts=full)

    assert [claim.endpoint_id for claim in batch.claims] == [free]
    assert batch.ended
    assert statuses(connection) == {"in_flight": 1, "pending": 150}


def test_a_new_url_is_another_host(app: Flask, connection: psycopg.Connection) -> None:
    """The lane follows the endpoint, and is numbered when it is made."""
    settings: Settings = app.extensions["webhooks_settings"]
    lane_host = "SELECT host FROM webhooks.lanes"
    with app.app_context():
        endpoint, _ = create(app, url="http://127.0.0.1/hook")
        assert one(connection, lane_host) == host(connection, "http://127.0.0.1/")

        endpoints.update(endpoint, settings, actor="test", url="http://127.0.0.2/hook")
        assert one(connection, lane_host) == host(connection, "http://127.0.0.2/")


def test_workers_are_counted_while_their_lease_runs(connection: psycopg.Connection) -> None:
    """By that the limit is shared: a dead worker's part is the others'."""
    assert workers.count(connection) == 1  # whoever asks is one
    first = register(connection)
    register(connection)
    assert workers.count(connection) == 2

    connection.execute("UPDATE webhooks.workers SET lease = '-1 h' WHERE id = %s", [first])
    assert workers.count(connection) == 1


def test_a_hanging_host_gets_no_more_than_its_limit(
    settings: Settings, connection: psycopg.Connection
) -> None:
    """Thirty endpoints of a host that never answers: two are sent at a time, all in the end."""
    with Recorder(delay_s=0.05) as victim:
        for n in range(30):
            make_target(connection, f"{victim.url}/{n}")
        emit(connection)
        with dispatching(settings, host_max_in_flight=2):
            eventually(lambda: statuses(connection) == {"delivered": 30}, 30)
        assert 1 <= victim.most_at_once <= 2
