"""What may be registered as an endpoint's URL: one rule behind every door."""

from __future__ import annotations

import dataclasses
import logging
import socket
from collections.abc import Iterator
from itertools import chain

import psycopg
import pytest
from flask import Flask

from tests.api import Api, errors
from tests.hostile_urls import REFUSED
from tests.pages import path_of, post, signed_in
from tests.queue import one
from webhooks import ids
from webhooks.addresses import AddressPolicy
from webhooks.app import create_app
from webhooks.resolver import Resolver
from webhooks.settings import Settings

GOOD = "https://hooks.example.com/in"
STORED = "SELECT url FROM webhooks.endpoints"
HOSTILE = list(chain(*REFUSED.values()))


@pytest.fixture
def app(settings: Settings) -> Iterator[Flask]:
    """The application as it is in production: https only, no special network."""
    made = create_app(
        dataclasses.replace(
            settings, allow_http=False, allow_cidrs=(), deny_hosts=("webhooks.acme.com",)
        )
    )
    yield made
    made.extensions["webhooks_notifier"].close()
    with made.app_context():
        made.extensions["sqlalchemy"].engine.dispose()


@pytest.fixture
def api(app: Flask) -> Api:
    return Api(app)


def test_every_hostile_url_is_refused_by_the_api(api: Api, connection: psycopg.Connection) -> None:
    """POST and PATCH: 422 on the field, nothing stored (W026, W031, W037, W038, W047; row 33)."""
    endpoint = api.endpoint(url=GOOD)
    for url in [*HOSTILE, "https://webhooks.acme.com/api/v1/events"]:
        body = {"url": url, "event_types": ["*"]}
        for answer in (api.post("/endpoints", body), api.patch(f"/endpoints/{endpoint}", body)):
            if "\ud800" in url:  # no JSON text
                assert answer.status_code == 400
                continue
            assert answer.status_code == 422, url
            assert set(errors(answer)) == {"url"}, url

    assert [row[0] for row in connection.execute(STORED)] == [GOOD]


def test_every_hostile_url_is_refused_by_the_form(
    app: Flask, connection: psycopg.Connection
) -> None:
    """The dashboard's forms have the same door; only blanks around a URL are forgiven (W026)."""
    owner = signed_in(app)
    assert post(owner, "/endpoints", {"url": f" {GOOD}\n", "event_types": "*"}).status_code == 201
    path = path_of("ep", one(connection, "SELECT id FROM webhooks.endpoints"))
    # A page takes longer than an answer of the API; a browser sends no lone surrogate.
    some = [url for urls in REFUSED.values() for url in urls[:3] if "\ud800" not in url]
    for url in some:
        if parses_when_stripped(url):
            continue
        for form in ("/endpoints", path):
            answer = post(owner, form, {"url": url, "event_types": "*"})
            assert answer.status_code == 422, url

    assert [row[0] for row in connection.execute(STORED)] == [GOOD]


def parses_when_stripped(url: str) -> bool:
    return url != url.strip() and url.strip() not in HOSTILE


@pytest.mark.parametrize(
    "url",
    ["https://ana:pa55-canary@a.example/h", "https://pa55-canary@a.example/",
     "//u:pa55-canary@a.b/", "u:pa55-canary@a.example/", "https://ana:pa55-canary@127.0.0.1:22/", "https://:pa55-canary@/"],
)  # fmt: skip
def test_credentials_in_a_url_are_not_repeated(
    api: Api, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    """Refused, and neither the answer nor the log shows them (W037)."""
    caplog.set_level(logging.DEBUG)
    answer = api.post("/endpoints", {"url": url, "event_types": ["*"]})

    assert answer.status_code == 422
    assert "canary" not in answer.text
    assert "canary" not in caplog.text


def test_the_canonical_form_is_stored_and_shown(api: Api, connection: psycopg.Connection) -> None:
    """What is answered is what will be dialled (rows 27 and 28, W028, W038)."""
    endpoint = api.endpoint(url="HTTPS://B\u00fccher.Example.:443/A/../b?x=%7e")
    canonical = "https://xn--bcher-kva.example/A/../b?x=%7e"

    assert api.get(f"/endpoints/{endpoint}").json["url"] == canonical
    assert one(connection, STORED) == canonical
    assert ids.decode(ids.ENDPOINT, endpoint)


GOOD_ONE = "https://public.example.com/in"
ANSWERS = {
    "public.example.com": ["93.184.216.34"],
    "inside.example.com": ["93.184.216.34", "10.0.0.1"],
}


def look_up(host: str) -> list[str]:
    """Name servers of our own."""
    if host not in ANSWERS:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return ANSWERS[host]


@pytest.fixture
def asking(app: Flask) -> Iterator[Api]:
    """The API of a web process, which looks names up."""
    policy = AddressPolicy.from_settings(app.extensions["webhooks_settings"])
    resolver = app.extensions["webhooks_resolver"] = Resolver(policy, look_up)
    yield Api(app)
    resolver.close()


def test_a_name_that_stands_for_a_denied_address_is_refused(asking: Api) -> None:
    """At POST and PATCH, with the one text, if any of its answers is denied (rows 29, 30)."""
    endpoint = asking.endpoint(url="https://public.example.com/in")
    body = {"url": "https://inside.example.com/in", "event_types": ["*"]}

    answers = [asking.post("/endpoints", body), asking.patch(f"/endpoints/{endpoint}", body)]

    for answer in answers:
        assert answer.status_code == 422
        assert errors(answer) == {"url": "the target address is not allowed"}
    assert (asking.get(f"/endpoints/{endpoint}").json or {})["url"].startswith("https://public.")


def test_a_name_without_an_address_is_a_warning(app: Flask, asking: Api) -> None:
    """It may come up later: 201 with what is worth a look, in the form's answer too (row 32)."""
    body = {"url": "https://coming.example.com/in", "event_types": ["*"]}

    made, good = (
        asking.post("/endpoints", body),
        asking.post("/endpoints", body | {"url": GOOD_ONE}),
    )
    changed = asking.patch(f"/endpoints/{(good.json or {})['id']}", {"url": body["url"]})
    form = post(signed_in(app), "/endpoints", {"url": body["url"], "event_types": "*"})

    assert made.status_code == 201
    (warning,) = (made.json or {})["warnings"]
    assert "deliveries fail until it can be resolved" in warning
    assert "warnings" not in (good.json or {})
    assert (changed.json or {})["warnings"] == [warning]
    assert "until it can be resolved" in form.text
