"""Signing secrets of an endpoint: rotation with an overlap, import, revocation, key sets."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import threading
import time
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from flask import Flask
from msgspec.structs import replace

from tests.api import Api, errors
from tests.queue import claim, emit, register
from tests.support import KEYRING
from webhooks import signing
from webhooks.attempt import Claim, Withheld
from webhooks.secrets import Keyring
from webhooks.sending import Sender
from webhooks.settings import Settings
from webhooks.transports.base import Request

NOW = 1_700_000_000
OWN = "whsec_" + base64.b64encode(b"k" * 32).decode()
PAIR = "whsk_" + base64.b64encode(b"s" * 32).decode()


@pytest.fixture
def api(app: Flask) -> Api:
    return Api(app, "default")


def new_endpoint(api: Api, **fields: Any) -> Any:
    body = {"url": "http://127.0.0.1:8080/hook", "event_types": ["*"], **fields}
    answer = api.post("/endpoints", body)
    assert answer.status_code == 201, answer.text
    return answer.json


def rotate(api: Api, endpoint: str, **fields: Any) -> Any:
    answer = api.post(f"/endpoints/{endpoint}/secrets", fields)
    assert answer.status_code == 201, answer.text
    return answer.json


def listed(api: Api, endpoint: str) -> Any:
    answer = api.get(f"/endpoints/{endpoint}/secrets").json
    assert answer is not None
    return answer["data"]


def sent(connection: psycopg.Connection) -> dict[str, str]:
    """The headers of a delivery that is claimed now."""
    emit(connection)
    (found,) = claim(connection, register(connection))
    return headers(found)


def headers(found: Claim) -> dict[str, str]:
    request = Sender(Settings(), Keyring.parse(KEYRING)).prepare(found, lambda: NOW)
    assert isinstance(request, Request), request
    return dict(request.headers)


def accepts(secret: str, found: dict[str, str]) -> bool:
    try:
        signing.verify([secret], found, b"{}", NOW)
    except signing.SignatureError:
        return False
    return True


def later(connection: psycopg.Connection, by: timedelta) -> None:
    """Time passes: every end comes nearer."""
    connection.execute("UPDATE webhooks.signing_secrets SET valid_until = valid_until - %s", [by])


def test_both_secrets_sign_during_the_overlap_and_the_new_one_after(
    api: Api, connection: psycopg.Connection
) -> None:
    """A receiver of the old secret and one of the new both verify; then the new one (W015)."""
    made = new_endpoint(api)
    new = rotate(api, made["id"])["secret"]

    during = sent(connection)
    later(connection, timedelta(hours=24))
    after = sent(connection)

    assert [accepts(secret, during) for secret in (made["secret"], new)] == [True, True]
    assert [accepts(secret, after) for secret in (made["secret"], new)] == [False, True]
    assert during["webhook-signature"].count("v1,") == 2


@pytest.mark.parametrize(("overlap_s", "ends_in_s"), [(3600, 3600), (604_800, 604_800), (0, 0)])
def test_the_overlap_is_a_choice(
    api: Api, connection: psycopg.Connection, overlap_s: int, ends_in_s: int
) -> None:
    """From not at all, which revokes, to seven days."""
    endpoint = new_endpoint(api)["id"]
    rotate(api, endpoint, overlap_s=overlap_s)

    old = connection.execute(
        "SELECT extract(epoch FROM valid_until - now())::int, revoked "
        "FROM webhooks.signing_secrets ORDER BY id LIMIT 1"
    ).fetchone()
    assert old is not None
    assert ends_in_s - 5 <= old[0] <= ends_in_s
    assert old[1] is (overlap_s == 0)
    assert len(listed(api, endpoint)) == (1 if overlap_s == 0 else 2)


def test_many_rotations_keep_five_secrets(api: Api, connection: psycopg.Connection) -> None:
    """Twenty in a row: five sign, the newest first, and the header stays small (W016)."""
    endpoint = new_endpoint(api)["id"]
    secrets = [rotate(api, endpoint)["secret"] for _ in range(20)]

    found = sent(connection)["webhook-signature"]

    assert len(found.split(" ")) == 5
    assert len(found) < 1024
    assert all(accepts(each, {**sent(connection)}) for each in secrets[-5:])
    later(connection, timedelta(hours=25))
    assert len(sent(connection)["webhook-signature"].split(" ")) == 1


def test_a_secret_is_shown_once(api: Api) -> None:
    """In the answer that made it; what was imported and what is private never comes back."""
    made = new_endpoint(api)
    shown = rotate(api, made["id"])
    imported = rotate(api, made["id"], secret=OWN)
    pair = rotate(api, made["id"], kind="ed25519")

    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", shown["secret"])
    assert "secret" not in imported
    assert "secret" not in pair
    assert re.fullmatch(r"whpk_[A-Za-z0-9+/]{43}=", pair["public_key"])
    texts = str(listed(api, made["id"])) + str(api.get(f"/endpoints/{made['id']}").json)
    assert not re.search(r"whsec_|whsk_", texts)


def test_an_imported_secret_signs(api: Api, connection: psycopg.Connection) -> None:
    """A customer who moves over keeps his receivers as they are."""
    made = new_endpoint(api, secret=OWN)

    assert made["secret"] is None
    assert accepts(OWN, sent(connection))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"secret": "whsec_short"}, "secret"),
        ({"secret": "whsec_" + base64.b64encode(b"k" * 23).decode()}, "secret"),
        ({"secret": "v1," + OWN}, "secret"),
        ({"secret": "a text of ours"}, "kind"),
        ({"secret": OWN, "kind": "ed25519"}, "secret"),
        ({"kind": "rsa"}, "kind"),
        ({"overlap_s": -1}, "overlap_s"),
        ({"overlap_s": 604_801}, "overlap_s"),
        ({"overlap_s": True}, "overlap_s"),
        ({"overlap": 5}, "overlap"),
    ],
)
def test_a_wrong_value_is_named_and_changes_nothing(
    api: Api, fields: dict[str, Any], field: str
) -> None:
    """422 with the field, never with the secret (row 59)."""
    endpoint = new_endpoint(api)["id"]
    before = listed(api, endpoint)

    answer = api.post(f"/endpoints/{endpoint}/secrets", fields)

    assert answer.status_code == 422
    assert list(errors(answer)) == [field]
    assert str(fields.get("secret", "§")) not in answer.text
    assert listed(api, endpoint) == before


def test_a_revoked_secret_signs_nothing_more(api: Api, connection: psycopg.Connection) -> None:
    """At once, and the audit log says who did it, without the secret."""
    made = new_endpoint(api)
    new = rotate(api, made["id"])
    old = listed(api, made["id"])[1]["id"]
    path = f"/endpoints/{made['id']}/secrets/{old}"

    assert api.delete(path).status_code == 204
    assert api.delete(path).status_code == 404

    found = sent(connection)
    assert [accepts(secret, found) for secret in (made["secret"], new["secret"])] == [False, True]
    entry = connection.execute(
        "SELECT action, detail::text FROM webhooks.audit_log ORDER BY id DESC LIMIT 1"
    ).fetchone()
    assert entry is not None
    assert entry[0] == "secret.revoke"
    assert old in entry[1]
    assert "whsec_" not in entry[1]


def test_the_last_secret_is_not_revoked(api: Api) -> None:
    """Nothing could be signed any more: a new one comes first."""
    endpoint = new_endpoint(api)["id"]
    (only,) = listed(api, endpoint)

    answer = api.delete(f"/endpoints/{endpoint}/secrets/{only['id']}")

    assert answer.status_code == 422
    assert "needs a secret" in errors(answer)["schemes"]


def test_a_key_pair_beside_a_shared_secret(api: Api, connection: psycopg.Connection) -> None:
    """Its rotation leaves the shared one alone; either kind of receiver verifies (S8, S10)."""
    made = new_endpoint(api)
    public = rotate(api, made["id"], kind="ed25519")["public_key"]

    found = sent(connection)

    assert accepts(made["secret"], found)
    assert accepts(public, found)
    assert [row["valid_until"] for row in listed(api, made["id"])] == [None, None]


def test_an_endpoint_gets_the_keys_that_its_schemes_need(
    api: Api, connection: psycopg.Connection
) -> None:
    """A token alone needs a key pair; with Standard Webhooks beside it, a shared one too."""
    token = new_endpoint(api, schemes=["jwt"])
    both = new_endpoint(api, schemes=["standard", "jwt", "github"])

    assert [row["kind"] for row in listed(api, token["id"])] == ["ed25519"]
    assert {row["kind"] for row in listed(api, both["id"])} == {"hmac", "ed25519"}
    assert (token["secret"], token["schemes"]) == (None, ["jwt"])
    assert both["secret"].startswith("whsec_")
    emit(connection)
    for found in claim(connection, register(connection)):
        assert "webhook-jwt" in headers(found)


def test_schemes_change_only_with_their_keys(api: Api, connection: psycopg.Connection) -> None:
    """A scheme without a key is refused; after a rotation it is taken, and sent."""
    endpoint = new_endpoint(api)["id"]
    path = f"/endpoints/{endpoint}"
    refused = api.patch(path, {"schemes": ["standard", "jwt"]})
    assert (refused.status_code, list(errors(refused))) == (422, ["schemes"])

    rotate(api, endpoint, kind="ed25519")
    answer = api.patch(path, {"schemes": ["slack", "jwt"]})

    assert answer.json is not None
    assert answer.json["schemes"] == ["slack", "jwt"]
    found = sent(connection)
    assert {"X-Slack-Signature", "webhook-jwt", "webhook-id"} <= found.keys()
    assert "webhook-signature" not in found


def test_another_tenants_secrets_are_not_found(app: Flask, api: Api) -> None:
    """404 for list, rotate and revoke."""
    endpoint = new_endpoint(api)["id"]
    (secret,) = listed(api, endpoint)
    foreign = Api(app, "globex")

    answers = [
        foreign.get(f"/endpoints/{endpoint}/secrets"),
        foreign.post(f"/endpoints/{endpoint}/secrets", {}),
        foreign.delete(f"/endpoints/{endpoint}/secrets/{secret['id']}"),
    ]

    assert [answer.status_code for answer in answers] == [404] * 3
    assert listed(api, endpoint) == [secret]


def test_a_key_set_is_public(app: Flask, api: Api, connection: psycopg.Connection) -> None:
    """Live keys and those that ended less than 7 days ago, never a revoked one; no sign-in."""
    endpoint = new_endpoint(api, schemes=["jwt"])["id"]
    old = listed(api, endpoint)[0]["id"]
    new = rotate(api, endpoint, kind="ed25519", overlap_s=3600)["id"]
    address = f"/.well-known/jwks/{endpoint}.json"

    def key_ids() -> list[str]:
        answer = app.test_client().get(address)
        assert (answer.status_code, answer.mimetype) == (200, "application/jwk-set+json")
        assert answer.json is not None
        return [key["kid"] for key in answer.json["keys"]]

    assert key_ids() == [new, old]
    later(connection, timedelta(days=6))
    assert key_ids() == [new, old]
    later(connection, timedelta(days=2))
    assert key_ids() == [new]
    rotate(api, endpoint, kind="ed25519", overlap_s=0)
    assert new not in key_ids()
    assert app.test_client().get("/.well-known/jwks/ep_0.json").status_code == 404


def test_what_ends_by_itself_is_no_reason_to_revoke(api: Api) -> None:
    """Back to the old secret after a rotation: it ends within a day, and nothing could sign."""
    endpoint = new_endpoint(api)["id"]
    new = rotate(api, endpoint)["id"]

    answer = api.delete(f"/endpoints/{endpoint}/secrets/{new}")

    assert (answer.status_code, list(errors(answer))) == (422, ["schemes"])
    assert api.patch(f"/endpoints/{endpoint}", {"schemes": ["svix"]}).status_code == 200


def test_many_rotations_of_one_kind_leave_the_others(api: Api) -> None:
    """The sixth secret ends one that was to end, never another kind's only one (W016)."""
    endpoint = new_endpoint(api, schemes=["github", "jwt"])["id"]
    for _ in range(8):
        rotate(api, endpoint, kind="ed25519")

    rows = listed(api, endpoint)

    assert [row["kind"] for row in rows].count("hmac") == 1
    assert len(rows) == 5


def test_two_revocations_at_a_time_leave_a_secret(
    api: Api, app: Flask, connection: psycopg.Connection
) -> None:
    """The second waits for the first, and then sees that the last one would go."""
    endpoint = new_endpoint(api)["id"]
    rotate(api, endpoint, kind="ed25519")
    pair, shared = (row["id"] for row in listed(api, endpoint))
    answers: list[int] = []

    def revoke(secret: str) -> None:
        answers.append(api.delete(f"/endpoints/{endpoint}/secrets/{secret}").status_code)

    with connection.transaction():
        connection.execute("SELECT FROM webhooks.endpoints FOR UPDATE")
        both = [threading.Thread(target=revoke, args=[each]) for each in (pair, shared)]
        for thread in both:
            thread.start()
        time.sleep(0.5)  # both have begun, and wait for the row
    for thread in both:
        thread.join()

    assert sorted(answers) == [204, 422]
    assert len(listed(api, endpoint)) == 1


@pytest.mark.parametrize("scheme", ["github", "stripe"])
def test_a_leaked_text_is_replaced_by_a_new_secret(
    api: Api, connection: psycopg.Connection, scheme: str
) -> None:
    """Where the same schemes sign with both kinds, one takes the other's place."""
    endpoint = new_endpoint(api, schemes=[scheme], secret="leaked text of ours")["id"]

    new = rotate(api, endpoint, overlap_s=0)["secret"]

    assert [row["kind"] for row in listed(api, endpoint)] == ["hmac"]
    found = sent(connection)
    digest = hmac.new(new.encode(), b"{}", hashlib.sha256).hexdigest()
    if scheme == "github":
        assert found["X-Hub-Signature-256"] == f"sha256={digest}"
    else:
        assert found["Stripe-Signature"].count("v1=") == 1


def test_deliveries_wait_where_nothing_can_be_signed(
    api: Api, connection: psycopg.Connection
) -> None:
    """Its secret has ended: nothing is dead-lettered, and the endpoint says why."""
    endpoint = new_endpoint(api)["id"]
    emit(connection)
    (found,) = claim(connection, register(connection))
    later(connection, timedelta(days=1))
    connection.execute("UPDATE webhooks.signing_secrets SET valid_until = now()")

    withheld = Sender(Settings(), Keyring.parse(KEYRING)).prepare(
        replace(found, target=replace(found.target, secrets=())), lambda: NOW
    )

    assert isinstance(withheld, Withheld)
    shown = api.get(f"/endpoints/{endpoint}").json
    assert shown is not None
    assert shown["missing_key"].startswith("nothing can be signed: standard needs a secret")
