"""What we sign, judged by the JavaScript libraries that receivers use."""

from __future__ import annotations

import base64
import json
import random
import time
from pathlib import Path

from tests.node import case, verdicts
from webhooks import signing
from webhooks.signing import Kind, Message, Signer

URL = "https://hooks.example/in"
ALPHABET = 'aZ09 {}[]"\\/\t\n\u0000\u001f\u2028é☃𝄞שלום日本'


def sign(
    scheme: str, secrets: list[str], body: bytes, message_id: str = "evt_1"
) -> signing.Headers:
    keys = [(f"sec_{n}", signing.import_secret(text)) for n, text in enumerate(secrets)]
    message = Message(message_id, int(time.time()), body, URL, "a.b")
    return Signer([scheme], keys).headers(message)


def new_secrets(count: int) -> list[str]:
    return [signing.new_secret() for _ in range(count)]


def any_body(seed: random.Random) -> bytes:
    """JSON in any spelling: these libraries parse what they verified."""
    value = {
        "".join(seed.choices(ALPHABET, k=3)): "".join(
            seed.choices(ALPHABET, k=seed.randint(0, 200))
        )
    }
    return json.dumps(
        value, ensure_ascii=seed.random() < 0.5, indent=seed.choice([None, 0, 2])
    ).encode()


def test_a_thousand_random_messages_verify(javascript_verifiers: Path) -> None:
    """By Standard Webhooks' library and by Svix's, with any of one to five live secrets."""
    seed = random.Random(9)
    right, wrong = [], []
    for n in range(1000):
        body, secrets = any_body(seed), new_secrets(n % 5 + 1)
        scheme = seed.choice(["standard", "svix"])
        headers = sign(scheme, secrets, body, f"evt_{n}")
        right.append(case(scheme, headers, body, secret=seed.choice(secrets)))
        if n % 10 == 0:
            wrong.append(case(scheme, headers, body + b" ", secret=secrets[0]))
            wrong.append(case(scheme, headers, body, secret=signing.new_secret()))

    found = verdicts(javascript_verifiers, [*right, *wrong])

    assert found == [True] * len(right) + [False] * len(wrong)


def test_the_libraries_of_github_and_of_tokens_agree(javascript_verifiers: Path) -> None:
    """GitHub's own for its form; for a token the key set decides, and the target."""
    body = '{"n":"Zoë"}'.encode()
    text, pair = "It's a Secret to Everybody", signing.new_secret(Kind.ED25519)
    github = sign("github", [text], body)
    token = sign("jwt", [pair], body)
    keys = signing.jwks([("sec_0", signing.import_secret(pair).public or b"")])
    others = signing.jwks([("sec_0", base64.b64decode(signing.new_secret()[6:]))])

    found = verdicts(
        javascript_verifiers,
        [
            case("github", github, body, secret=text),
            case("github", github, body + b" ", secret=text),
            case("github", github, body, secret=text + "!"),
            case("jwt", token, body, keys=keys, url=URL),
            case("jwt", token, body, keys=keys, url="https://else.example"),
            case("jwt", token, body, keys=others, url=URL),
        ],
    )

    assert found == [True, False, False, True, False, False]
