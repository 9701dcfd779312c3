"""Idempotency-Key on POSTs other than emit: done once, answered as often as asked."""

from __future__ import annotations

import copy
import threading
from typing import Any

import psycopg
import pytest
from flask import Flask

from tests.api import Api
from tests.canary import Canaries
from tests.queue import one
from webhooks import maintenance
from webhooks.api import idempotency

BODY = {"url": "http://127.0.0.1:8080/hook", "event_types": ["*"]}


@pytest.fixture
def api(app: Flask) -> Api:
    return Api(app)


def create(api: Api, key: str = "k", **fields: Any) -> Any:
    return api.post("/endpoints", {**BODY, **fields}, Idempotency_Key=key)


def endpoints(connection: psycopg.Connection) -> int:
    count: int = one(connection, "SELECT count(*) FROM webhooks.endpoints")
    return count


def test_the_same_request_again_gets_the_same_answer(
    api: Api, connection: psycopg.Connection
) -> None:
    """Status, body and Location, the secret that is shown once included; and one endpoint."""
    first, again = create(api), create(api)

    assert (first.status_code, first.headers.get("Idempotent-Replayed")) == (201, None)
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (201, "true")
    assert again.data == first.data
    assert first.json["secret"].startswith("whsec_")
    assert again.headers["Location"] == first.headers["Location"]
    assert again.headers["X-Request-Id"] != first.headers["X-Request-Id"]
    assert endpoints(connection) == 1


def test_another_request_with_the_key_is_refused(api: Api, connection: psycopg.Connection) -> None:
    """Another body, path or query: nothing is done, and the field is named."""
    create(api)

    for answer in (
        create(api, description="another"),
        api.post("/retry-policies/preview", BODY, Idempotency_Key="k"),
        api.post("/endpoints?x=1", BODY, Idempotency_Key="k"),
    ):
        assert answer.status_code == 409
        assert answer.json["errors"][0]["field"] == "Idempotency-Key"
    assert endpoints(connection) == 1


def test_keys_belong_to_who_sent_them(app: Flask, api: Api, connection: psycopg.Connection) -> None:
    """Another API key's request with the same key is another request."""
    first, other, own = create(api), create(Api(app)), create(Api(app, "acme"))

    assert len({each.json["id"] for each in (first, other, own)}) == 3
    assert not any("Idempotent-Replayed" in each.headers for each in (other, own))


def test_what_failed_may_be_tried_again(api: Api, connection: psycopg.Connection) -> None:
    """A refused request has changed nothing; the key is free for the right one."""
    assert create(api, url="gopher://x/").status_code == 422
    assert create(api).status_code == 201
    assert endpoints(connection) == 1


def test_many_at_once_are_one(app: Flask, api: Api, connection: psycopg.Connection) -> None:
    """Twenty threads with one key: all get the first one's answer (W141's kind)."""
    answers: list[Any] = []

    def ask() -> None:
        mine = copy.copy(api)
        mine._client = app.test_client()
        answers.append(create(mine))

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {each.status_code for each in answers} == {201}
    assert len({each.json["id"] for each in answers}) == 1
    assert sum("Idempotent-Replayed" not in each.headers for each in answers) == 1
    assert endpoints(connection) == 1


def test_who_waits_for_long_is_told(
    api: Api, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the first is at it: a conflict that says when to ask again."""
    create(api)
    connection.execute(
        "UPDATE webhooks.idempotency_keys SET answer = '', working_until = now() + interval '1 min'"
    )
    monkeypatch.setattr(idempotency, "WAIT_S", 0.1)

    answer = create(api)

    assert (answer.status_code, answer.headers["Retry-After"]) == (409, "5")
    assert "still being worked on" in answer.json["detail"]


def test_an_unknown_outcome_is_said_to_be(api: Api, connection: psycopg.Connection) -> None:
    """A process that died between its work and its answer: nobody repeats it, nobody pretends."""
    create(api)
    connection.execute(
        "UPDATE webhooks.idempotency_keys SET answer = '', working_until = now() - interval '1 s'"
    )

    answer = create(api)

    assert answer.status_code == 409
    assert "may have been done" in answer.json["detail"]
    assert endpoints(connection) == 1


def test_the_window_is_a_day(api: Api, connection: psycopg.Connection) -> None:
    """Within it the key is remembered, past it the same request is a new one (W144)."""
    create(api)
    left = one(connection, "SELECT date_part('epoch', expires_at - now()) "
                           "FROM webhooks.idempotency_keys")  # fmt: skip
    assert 86_390 < left <= 86_400
    maintenance.expire_idempotency_keys(connection)
    assert "Idempotent-Replayed" in create(api).headers

    connection.execute("UPDATE webhooks.idempotency_keys SET expires_at = now()")
    assert "Idempotent-Replayed" not in create(api).headers
    maintenance.expire_idempotency_keys(connection)
    assert endpoints(connection) == 2


def test_a_kept_answer_is_encrypted(app: Flask, api: Api, connection: psycopg.Connection) -> None:
    """The database holds neither its secret nor its words; without the key it says so (W152)."""
    canaries = Canaries()
    canaries.add("secret", create(api).json["secret"])
    canaries.add("path", "127.0.0.1:8080/hook")
    stored = one(connection, "SELECT answer FROM webhooks.idempotency_keys")
    assert canaries.found(stored.encode()) == []

    keyring = app.extensions["webhooks_keyring"]
    app.extensions["webhooks_keyring"] = type(keyring).parse("other:" + "A" * 43 + "=")
    answer = create(api)
    assert answer.status_code == 409
    assert "cannot be read any more" in answer.json["detail"]


@pytest.mark.parametrize("key", [" ", "x" * 256, "a\x7fb", "x" * 10_000])
def test_a_malformed_key_is_refused(api: Api, connection: psycopg.Connection, key: str) -> None:
    """1 to 255 printable characters, not only blanks (W143)."""
    answer = create(api, key)

    assert answer.status_code == 422
    assert answer.json["errors"][0]["field"] == "Idempotency-Key"
    assert endpoints(connection) == 0


def test_without_a_key_nothing_is_kept(api: Api, connection: psycopg.Connection) -> None:
    """And a request that is no POST needs none: it may be repeated as it is."""
    endpoint = api.endpoint()
    answer = api.call("PATCH", f"/endpoints/{endpoint}", {"description": "x"},
                      headers={"Idempotency-Key": "k"})  # fmt: skip

    assert answer.status_code == 200
    assert one(connection, "SELECT count(*) FROM webhooks.idempotency_keys") == 0
