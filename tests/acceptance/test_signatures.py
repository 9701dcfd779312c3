"""What is sent verifies: real processes, captured bytes, verifiers that others wrote."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import http_message_signatures
import jwt
import pytest
import requests
import standardwebhooks
import stripe
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from http_message_signatures import algorithms
from slack_sdk.signature import SignatureVerifier

from tests.recorder import Received, Recorder
from tests.stack import Stack, eventually

pytestmark = pytest.mark.acceptance

DELIVERIES = 1_000
OWN_TEXT = "It's a Secret to Everybody"
ENDPOINTS_SECRETS = "/endpoints/{}/secrets"


@pytest.fixture
def stack(database_url: str) -> Iterator[Stack]:
    """Web and worker as gunicorn processes, with quick retries."""
    env = {"WEBHOOKS_RETRY_BASE_S": "0.2", "WEBHOOKS_RETRY_FACTOR": "1"}
    with Stack(database_url, env) as running:
        running.start_web()
        running.start_worker()
        yield running


def rotate(stack: Stack, endpoint: str, **fields: Any) -> Any:
    answer = stack.post(ENDPOINTS_SECRETS.format(endpoint), fields)
    assert answer.status_code == 201, answer.text
    return answer.json()


def any_value(seed: random.Random, depth: int = 0) -> Any:
    """Some JSON value: nested, empty, large, in any script, with escapes."""
    letters = 'aé"\\/\n\t\u0000\u2028€ש😀中'
    kinds: list[Callable[[], Any]] = [
        lambda: None,
        lambda: seed.random() < 0.5,
        lambda: seed.randint(-(10**18), 10**18),
        lambda: seed.random() * 10 ** seed.randint(-20, 20),
        lambda: "".join(seed.choices(letters, k=seed.choice([0, 3, 40, 2000]))),
    ]
    if depth < 3:
        kinds += [
            lambda: [any_value(seed, depth + 1) for _ in range(seed.randint(0, 4))],
            lambda: {str(n): any_value(seed, depth + 1) for n in range(seed.randint(0, 4))},
        ]
    return seed.choice(kinds)()


def verifies(secret: str, request: Received) -> bool:
    try:
        standardwebhooks.Webhook(secret).verify(request.body, request.headers)
    except standardwebhooks.WebhookVerificationError:
        return False
    return True


def test_a_public_library_verifies_a_thousand_random_deliveries(stack: Stack) -> None:
    """Promise 8: bodies of every kind, some of them retried; bytes received are bytes signed."""
    seed = random.Random(20261201)
    with Recorder(lambda nth, request: 500 if nth % 10 == 0 else 200) as receiver:
        _, secret = stack.register(receiver.url)
        for _ in range(DELIVERIES // 100):
            lines = [
                json.dumps(
                    {"type": "test.event", "payload": any_value(seed)},
                    ensure_ascii=seed.random() < 0.5,
                )
                for _ in range(100)
            ]
            answer = requests.post(
                f"{stack.base_url}/api/v1/events/batch",
                data="\n".join(lines).encode(),
                headers={
                    "Authorization": f"Bearer {stack.key}", "Content-Type": "application/x-ndjson",
                },
                timeout=15,
            )  # fmt: skip
            assert {line["status"] for line in answer.json()["data"]} == {202}
        eventually(lambda: stack.statuses() == {"delivered": DELIVERIES}, 60)

    assert len(receiver.requests) > DELIVERIES * 1.1
    assert [r.id for r in receiver.requests if not verifies(secret, r)] == []
    changed = receiver.requests[0]
    assert not verifies(secret, Received(changed.path, changed.headers, changed.body + b" ", 0))


def test_a_rotation_costs_no_receiver_a_verification(stack: Stack) -> None:
    """Promise 7: under load the secret is rotated four times, and one receiver follows late.

    One receiver has the new secret at once, one the old one until the overlap ends: each
    request verifies for both, retries of what failed before the rotation too.
    """
    known: list[str] = []
    failures: list[str] = []

    def judge(nth: int, request: Received) -> int:
        # The one who follows late knows what was in force a rotation ago.
        late, current = known[max(0, len(known) - 2)], known[-1]
        if request.at - float(request.headers["webhook-timestamp"]) > 5:
            failures.append("signed long before it was sent")
        failures.extend(each for each in (late, current) if not verifies(each, request))
        return 500 if nth % 7 == 0 else 200

    with Recorder(judge) as receiver:
        endpoint, secret = stack.register(receiver.url)
        known.append(secret)
        for _ in range(4):
            stack.emit_sql(60)
            eventually(lambda: stack.statuses() == {"delivered": len(known) * 60}, 30)
            known.append(rotate(stack, endpoint)["secret"])

    assert failures == []
    assert len(receiver.requests) > 240


def accept_github(key: str, request: Received, stack: Stack, endpoint: str) -> None:
    digest = hmac.new(key.encode(), request.body, hashlib.sha256).hexdigest()
    assert request.headers["X-Hub-Signature-256"] == f"sha256={digest}"
    assert request.headers["X-GitHub-Event"] == "test.event"


def accept_shopify(key: str, request: Received, stack: Stack, endpoint: str) -> None:
    digest = hmac.new(key.encode(), request.body, hashlib.sha256).digest()
    assert request.headers["X-Shopify-Hmac-Sha256"] == base64.b64encode(digest).decode()


def accept_stripe(key: str, request: Received, stack: Stack, endpoint: str) -> None:
    header = request.headers["Stripe-Signature"]
    assert stripe.WebhookSignature.verify_header(request.body.decode(), header, key, 300)


def accept_slack(key: str, request: Received, stack: Stack, endpoint: str) -> None:
    assert SignatureVerifier(key).is_valid_request(request.body, request.headers)


def accept_svix(key: str, request: Received, stack: Stack, endpoint: str) -> None:
    renamed = {k.lower().replace("svix-", "webhook-"): v for k, v in request.headers.items()}
    assert standardwebhooks.Webhook(key).verify(request.body, renamed)


def key_set(stack: Stack, endpoint: str) -> jwt.PyJWKSet:
    """As a receiver fetches it: without credentials."""
    address = f"{stack.base_url}/.well-known/jwks/{endpoint}.json"
    return jwt.PyJWKSet.from_dict(requests.get(address, timeout=10).json())


def accept_jwt(key: str, request: Received, stack: Stack, endpoint: str) -> None:
    token = request.headers["webhook-jwt"]
    public = key_set(stack, endpoint)[jwt.get_unverified_header(token)["kid"]]
    target = f"http://{request.headers['Host']}{request.path}"
    claims = jwt.decode(token, public, algorithms=["EdDSA"], audience=target)
    assert claims["sha256"] == hashlib.sha256(request.body).hexdigest()
    assert claims["jti"] == request.id


def accept_rfc9421(key: str, request: Received, stack: Stack, endpoint: str) -> None:
    public: list[Ed25519PublicKey] = []

    class Keys(http_message_signatures.HTTPSignatureKeyResolver):
        def resolve_public_key(self, key_id: str) -> object:
            public.append(key_set(stack, endpoint)[key_id].key)
            return public[-1]

    target = f"http://{request.headers['Host']}{request.path}"
    received = requests.Request("POST", target, request.headers, data=request.body).prepare()
    verifier = http_message_signatures.HTTPMessageVerifier(
        signature_algorithm=algorithms.ED25519, key_resolver=Keys()
    )
    assert verifier.verify(received, expect_tag="webhook")
    assert public


SCHEMES: dict[str, tuple[Callable[[str, Received, Stack, str], None], dict[str, str]]] = {
    "github": (accept_github, {"secret": OWN_TEXT}),
    "shopify": (accept_shopify, {"secret": OWN_TEXT}),
    "stripe": (accept_stripe, {}),
    "slack": (accept_slack, {"secret": OWN_TEXT}),
    "svix": (accept_svix, {}),
    "jwt": (accept_jwt, {}),
    "rfc9421": (accept_rfc9421, {}),
}


def test_every_scheme_verifies_as_it_arrives(stack: Stack) -> None:
    """A team that moves over leaves its receivers as they are: first send, retry and replay."""
    # Each path is an endpoint's; every first request to one fails, so that it is retried.
    seen: set[str] = set()

    def answer(nth: int, request: Received) -> int:
        if request.path in seen:
            return 200
        seen.add(request.path)
        return 500

    with Recorder(answer) as receiver:
        made = {
            scheme: stack.register(f"{receiver.url}/{scheme}", schemes=[scheme], **own)
            for scheme, (_, own) in SCHEMES.items()
        }
        stack.emit({"n": "Zoë", "big": 12345678901234567890})
        eventually(lambda: stack.statuses() == {"delivered": len(SCHEMES)}, 30)
        for delivery in stack.get("/deliveries")["data"]:
            assert stack.post(f"/deliveries/{delivery['id']}/replay").status_code == 202
        eventually(lambda: len(receiver.requests) == 3 * len(SCHEMES), 30)

    for request in receiver.requests:
        scheme = request.path.rpartition("/")[2]
        accept, own = SCHEMES[scheme]
        endpoint, secret = made[scheme]
        accept(own.get("secret", secret), request, stack, endpoint)
    assert len({request.body for request in receiver.requests}) == 1
    assert time.time() - receiver.requests[0].at < 60
