"""Signing schemes beside Standard Webhooks v1: outside vectors, outside verifiers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import string
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import http_message_signatures
import jwt
import pytest
import requests
import standardwebhooks
import stripe
from http_message_signatures import algorithms
from hypothesis import given
from hypothesis import strategies as st
from slack_sdk.signature import SignatureVerifier

from webhooks import ids, signing
from webhooks.signing import (
    KINDS,
    Kind,
    Message,
    Scheme,
    SchemeError,
    SignatureError,
    Signer,
    SigningSecretError,
    http_signature,
    keys,
)  # fmt: skip

VECTORS: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[1] / "data" / "vectors.json").read_text(encoding="utf-8")
)
URL = "https://hooks.example.com/in?x=1"
BODY = '{"type":"a.b","n":"Zoë"}'.encode()
NOW = 1_700_000_000
ID = "evt_01h455vb4pex5vsknk084sn02q"
SHARED = "whsec_" + base64.b64encode(hashlib.sha256(b"shared").digest()).decode()
OLDER = "whsec_" + base64.b64encode(hashlib.sha256(b"older").digest()).decode()
SEED = bytes.fromhex(VECTORS["rfc9421"][0]["seed_hex"])
PAIR = "whsk_" + base64.b64encode(SEED).decode()
OWN = "its own secret"
PUBLIC = VECTORS["standard_webhooks_v1a"][-1]["pk"]  # of the same seed (RFC 8032, test 1)


def message(body: bytes = BODY, timestamp: int = NOW, message_id: str = ID) -> Message:
    return Message(message_id, timestamp, body, URL, "a.b")


def text_key(text: str) -> keys.Secret:
    """A secret as it stands, shorter than we would import it."""
    return keys.Secret(Kind.TEXT, text)


def signed(
    scheme: str, *secrets: str | keys.Secret, given: Message | None = None
) -> dict[str, str]:
    read = [each if isinstance(each, keys.Secret) else signing.import_secret(each)
            for each in secrets]  # fmt: skip
    signer = Signer((scheme,), [(f"whk_{n}", each) for n, each in enumerate(read, 1)])
    return dict(signer.headers(given or message()))


# Vectors


@pytest.mark.parametrize("vector", VECTORS["standard_webhooks_v1a"], ids=lambda v: v["id"])
def test_published_vectors_of_key_pairs(vector: dict[str, Any]) -> None:
    """v1a: each signature is made from the private half and verified by the public one (S8)."""
    body = vector["body"].encode()
    headers = signed("standard", vector["sk"], given=message(body, vector["ts"], vector["id"]))

    assert headers["webhook-signature"] == vector["sig"]
    assert signing.show_public(signing.import_secret(vector["sk"]).public or b"") == vector["pk"]
    signing.verify([vector["pk"]], headers, body, vector["ts"])
    with pytest.raises(SignatureError):
        signing.verify([vector["pk"]], headers, body + b" ", vector["ts"])


@pytest.mark.parametrize(("name", "header"), [
    ("github", "X-Hub-Signature-256"), ("stripe", "Stripe-Signature"),
    ("shopify", "X-Shopify-Hmac-Sha256"), ("slack", "X-Slack-Signature"),
])  # fmt: skip
def test_vectors_of_compatible_schemes(name: str, header: str) -> None:
    """Each published example is made to the letter."""
    for vector in VECTORS[name]:
        if header.lower() not in vector:
            continue
        given = message(vector["body"].encode(), vector.get("ts", NOW))
        made = signed(name, text_key(vector["secret"]), given=given)[header]
        # Stripe's example carries a v0 that never verifies; we send none.
        assert made == re.sub(",v0=.*", "", vector[header.lower()])


@pytest.mark.parametrize("vector", VECTORS["rfc9421"], ids=lambda v: v["alg"])
def test_vectors_of_http_message_signatures(vector: dict[str, Any]) -> None:
    """The digest and the signature over the vector's own parameters (RFC 9421, RFC 9530)."""
    body = vector["body"].encode()
    digest = http_signature.content_digest(body)
    parameters = vector["signature-input"].removeprefix("sig1=")
    base = http_signature.signature_base(
        vector["target-uri"], vector["webhook-id"], digest, parameters
    )
    if vector["alg"] == "ed25519":
        secret = "whsk_" + base64.b64encode(bytes.fromhex(vector["seed_hex"])).decode()
    else:
        secret = "whsec_" + base64.b64encode(vector["key_ascii"].encode()).decode()
    algorithm, sign = http_signature.signer(signing.import_secret(secret))

    assert digest == vector["content-digest"]
    assert algorithm == vector["alg"]
    assert f"sig1=:{base64.b64encode(sign(base)).decode()}:" == vector["signature"]


def test_vector_of_tokens() -> None:
    """The published token, but for who issued it and to whom."""
    (vector,) = VECTORS["jwt"]
    theirs = jwt.decode(vector["jwt"], options={"verify_signature": False})
    given = Message(theirs["jti"], theirs["iat"], vector["body"].encode(), theirs["aud"], "a.b")

    made = signed("jwt", PAIR, given=given)["webhook-jwt"]

    head = jwt.get_unverified_header(made)
    assert head == jwt.get_unverified_header(vector["jwt"])
    ours = jwt.decode(made, options={"verify_signature": False})
    assert ours == theirs | {"iss": "webhooks"}
    public = signing.import_secret(PAIR).public
    assert public is not None
    assert signing.jwks([("whk_1", public)]) == {"keys": [vector["jwk"]]}


# Verifiers that others wrote


@given(st.binary(min_size=1, max_size=200), st.integers(0, 60))
def test_stripe_s_library_accepts_what_we_sign(body: bytes, age_s: int) -> None:
    """Any of two live secrets, the whole whsec_ text being the key, and no other."""
    body = base64.b64encode(body)  # the library wants text
    header = signed("stripe", SHARED, OLDER, given=message(body, int(time.time()) - age_s))
    verify = stripe.WebhookSignature.verify_header

    for secret in (SHARED, OLDER):
        assert verify(body.decode(), header["Stripe-Signature"], secret, 300)
    with pytest.raises(stripe.SignatureVerificationError):
        verify(body.decode(), header["Stripe-Signature"], SHARED + "x", 300)


def test_slack_s_library_accepts_what_we_sign() -> None:
    """With the secret's text, at the time of sending."""
    headers = signed("slack", "an old secret", given=message(timestamp=int(time.time())))

    assert SignatureVerifier("an old secret").is_valid_request(BODY, headers)
    assert not SignatureVerifier("another one").is_valid_request(BODY, headers)


@pytest.mark.parametrize(
    "body", [b"{}", BODY, b"\xf0\x9f\x98\x80" * 100], ids=["short", "utf-8", "emoji"]
)
def test_github_and_shopify_as_their_pages_say(body: bytes) -> None:
    """Hex and base64 of the same HMAC, by the newest secret alone: their forms hold one."""
    digest = hmac.new(SHARED.encode(), body, hashlib.sha256)
    given = message(body)

    assert signed("github", SHARED, OLDER, given=given)["X-Hub-Signature-256"] == (
        f"sha256={digest.hexdigest()}"
    )
    assert signed("shopify", SHARED, OLDER, given=given)["X-Shopify-Hmac-Sha256"] == (
        base64.b64encode(digest.digest()).decode()
    )


@pytest.mark.parametrize("secret", [PAIR, SHARED], ids=["ed25519", "hmac-sha256"])
def test_a_public_library_verifies_http_message_signatures(secret: str) -> None:
    """Method, target and body are covered: a change of any of them fails."""
    given = message(timestamp=int(time.time()))
    headers = {"content-type": "application/json", "webhook-id": ID} | signed(
        "rfc9421", secret, given=given
    )
    read = signing.import_secret(secret)
    pair = read.kind is Kind.ED25519

    class Keys(http_message_signatures.HTTPSignatureKeyResolver):
        def resolve_public_key(self, key_id: str) -> object:
            assert key_id == "whk_1"
            if pair:
                return keys.private_key(read).public_key()
            return signing.decode_secret(secret)

    verifier = http_message_signatures.HTTPMessageVerifier(
        signature_algorithm=algorithms.ED25519 if pair else algorithms.HMAC_SHA256,
        key_resolver=Keys(),
    )
    request = requests.Request("POST", URL, headers=headers, data=BODY).prepare()

    (result,) = verifier.verify(request, expect_tag="webhook")

    assert {'"@method"', '"@target-uri"', '"content-digest"'} <= set(result.covered_components)
    request.url = URL.replace("x=1", "x=2")
    with pytest.raises(http_message_signatures.InvalidSignature):
        verifier.verify(request, expect_tag="webhook")


def test_a_public_library_verifies_tokens_by_the_key_set() -> None:
    """By the key that the key set names, for this target, for five minutes."""
    now = int(time.time())
    token = signed("jwt", PAIR, given=message(timestamp=now))["webhook-jwt"]
    public = signing.import_secret(PAIR).public
    assert public is not None
    key_set = jwt.PyJWKSet.from_dict(signing.jwks([("whk_1", public)]))
    key = key_set[jwt.get_unverified_header(token)["kid"]]

    claims = jwt.decode(token, key, algorithms=["EdDSA"], audience=URL)

    assert claims["sha256"] == hashlib.sha256(BODY).hexdigest()
    assert claims["exp"] - claims["iat"] == 300
    with pytest.raises(jwt.InvalidAudienceError):
        jwt.decode(token, key, algorithms=["EdDSA"], audience="https://else.example")


def test_a_new_key_is_published_before_it_is_used() -> None:
    """A receiver may keep the key set for five minutes: until then the older key signs."""
    made_ms = NOW * 1000
    new, old = (
        ids.encode(ids.SECRET, UUID(int=(made_ms - age_s * 1000) << 80)) for age_s in (0, 86_400)
    )
    pair = signing.import_secret(PAIR)
    both = Signer(["jwt"], [(new, pair), (old, pair)])
    only = Signer(["jwt"], [(new, pair)])

    def signs(signer: Signer, after_s: int) -> str:
        token = dict(signer.headers(message(timestamp=NOW + after_s)))["webhook-jwt"]
        return str(jwt.get_unverified_header(token)["kid"])

    assert [signs(both, after_s) for after_s in (0, 300, 359, 360)] == [old, old, old, new]
    assert signs(only, 0) == new


def test_svix_gets_the_same_under_its_names() -> None:
    """The public verifier takes them once renamed; the signature is the same."""
    now = int(time.time())
    given = message(timestamp=now)

    svix, standard = signed("svix", SHARED, given=given), signed("standard", SHARED, given=given)

    assert svix["svix-signature"] == standard["webhook-signature"]
    assert (svix["svix-id"], svix["webhook-id"]) == (ID, ID)
    renamed = {name.replace("svix-", "webhook-"): value for name, value in svix.items()}
    assert standardwebhooks.Webhook(SHARED).verify(BODY, renamed)


# Which keys, which schemes


def test_one_header_holds_shared_and_paired_keys() -> None:
    """v1 and v1a side by side: either receiver verifies (S10)."""
    headers = signed("standard", PAIR, SHARED)
    public = signing.show_public(signing.import_secret(PAIR).public or b"")

    assert [s.split(",")[0] for s in headers["webhook-signature"].split(" ")] == ["v1a", "v1"]
    for secret in (public, SHARED):
        signing.verify([secret], headers, BODY, NOW)


def test_several_schemes_send_their_headers_together() -> None:
    """In the order that was chosen, no name twice, the message's id always."""
    secrets = [("sec_2", signing.import_secret(PAIR)), ("sec_1", signing.import_secret(SHARED))]
    for schemes in (tuple(Scheme), ("github",), ("slack", "svix")):
        names = [name.lower() for name, _ in Signer(schemes, secrets).headers(message())]
        assert len(names) == len(set(names))
        assert "webhook-id" in names


@pytest.mark.parametrize("scheme", ["github", "shopify", "slack"])
def test_a_secret_for_another_scheme_changes_nothing_for_a_text(scheme: str) -> None:
    """Who moves on to Standard Webhooks adds a whsec_; the old receiver's text goes on."""
    before = signed(scheme, "its own secret")
    texts = {"sec_2": SHARED, "sec_1": "its own secret"}
    secrets = [(name, signing.import_secret(text)) for name, text in texts.items()]

    both = dict(Signer([scheme, "standard"], secrets).headers(message()))

    assert before.items() <= both.items()
    signing.verify([SHARED], both, BODY, NOW)


@pytest.mark.parametrize("scheme", ["github", "shopify", "slack", "stripe"])
def test_the_newest_secret_signs_where_no_other_scheme_needs_it(scheme: str) -> None:
    """A rotation from a text to a whsec_ takes effect; Stripe's form holds both meanwhile."""
    secrets = [("sec_2", signing.import_secret(SHARED)), ("sec_1", signing.import_secret(OWN))]

    made = Signer([scheme], secrets).headers(message())

    newest = signed(scheme, SHARED)
    if scheme == "stripe":
        stripe.WebhookSignature.verify_header(
            BODY.decode(), dict(made)["Stripe-Signature"], OWN, 10**10
        )
        assert dict(made)["Stripe-Signature"].startswith(newest["Stripe-Signature"])
    else:
        assert newest.items() <= dict(made).items()


@pytest.mark.parametrize("scheme", Scheme)
def test_a_scheme_without_a_key_is_refused(scheme: Scheme) -> None:
    """Nothing goes out unsigned: each scheme names the kind that it needs (W010)."""
    for kind in Kind:
        usable = kind in KINDS[scheme][1]
        if usable:
            signing.check_schemes([scheme], {kind})
        else:
            with pytest.raises(SchemeError, match="needs a secret of the kind"):
                signing.check_schemes([scheme], {kind})
    (kind,) = signing.needed_kinds([scheme], set())
    signing.check_schemes([scheme], {kind})


@pytest.mark.parametrize("schemes", [[], ["standard", "standard"], ["md5"], [""]])
def test_unknown_and_repeated_schemes_are_refused(schemes: list[str]) -> None:
    """With what there is instead."""
    with pytest.raises(SchemeError):
        signing.check_schemes(schemes, set(Kind))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("whsk_" + base64.b64encode(SEED + SEED).decode(), "second half"),
        ("whsk_" + base64.b64encode(SEED[:31]).decode(), "31 bytes"),
        ("whsk_" + base64.b64encode(SEED + SEED[:30]).decode(), "62 bytes"),
        ("whsk_" + base64.urlsafe_b64encode(b"\xff" * 32).decode(), "URL-safe"),
        ("whpk_" + base64.b64encode(SEED).decode(), "public key"),
        (f"v1,{SHARED}", "leave out"),
        ("", "0 bytes"),
        ("short", "5 bytes"),
        ("x" * 257, "257 bytes"),
        (" padded canary", "blanks"),
        ("two\nlines of it", "control characters"),
    ],
    ids=["half", "31", "62", "url-safe", "public", "v1", "empty", "short", "long", "blank", "line"],
)
def test_secrets_of_the_wrong_form_are_refused(text: str, reason: str) -> None:
    """With the remedy, and never with the secret (row 59)."""
    with pytest.raises(SigningSecretError, match=re.escape(reason)) as caught:
        signing.import_secret(text)
    assert len(text) < 9 or text[8:] not in str(caught.value)


@given(st.text(max_size=300))
def test_any_text_is_a_secret_or_refused(text: str) -> None:
    """No import ends in another error, and what is taken can sign."""
    try:
        secret = signing.import_secret(text)
    except SigningSecretError:
        return
    scheme = next(each for each in Scheme if secret.kind in KINDS[each][1])
    assert Signer([scheme], [("sec_1", secret)]).headers(message())


# Verification


NAMES = ["webhook-id", "webhook-timestamp", "webhook-signature"]
VALUES = [str(NOW), f"v1,{'A' * 43}=", f"v1a,{'A' * 86}=="]


@given(
    st.dictionaries(
        st.text(max_size=30) | st.sampled_from(NAMES),
        st.text(max_size=200) | st.sampled_from(VALUES),
    ),
    st.binary(max_size=100),
    st.sampled_from([SHARED, "whpk_" + base64.b64encode(SEED).decode(), "whsec_", "x", PAIR]),
)  # fmt: skip
def test_nothing_hostile_raises_anything_else(
    headers: dict[str, str], body: bytes, secret: str
) -> None:
    """Verify raises its own error, diagnose none, whatever comes (W019)."""
    with pytest.raises(SignatureError):
        signing.verify([secret], headers, body, NOW)
    steps = signing.diagnose(secret, headers, body, NOW)
    assert any(wrong for _, wrong in steps)


@given(st.data())
def test_any_flipped_bit_fails(data: st.DataObject) -> None:
    """In the body, the id, the time or the signature, with either kind of key."""
    secret, public = data.draw(
        st.sampled_from(
            [(SHARED, SHARED), (PAIR, signing.show_public(keys.import_secret(PAIR).public or b""))]
        )
    )
    headers = signed("standard", secret)
    signing.verify([public], headers, BODY, NOW)
    name = data.draw(st.sampled_from(["body", *headers]))
    value = bytearray(BODY if name == "body" else headers[name].encode())
    # Past the version, whose change makes it another one's.
    place = data.draw(st.integers(4 if name == "webhook-signature" else 0, len(value) - 1))
    value[place] ^= 1 << data.draw(st.integers(0, 6))
    changed = headers if name == "body" else headers | {name: value.decode("latin-1")}

    with pytest.raises(SignatureError):
        signing.verify([public], changed, bytes(value) if name == "body" else BODY, NOW)


def test_a_signature_has_one_spelling() -> None:
    """The spare bits of its last base64 digit are nothing: another digit there is refused."""
    headers = signed("standard", PAIR)
    public = signing.show_public(signing.import_secret(PAIR).public or b"")
    signature = headers["webhook-signature"].removeprefix("v1a,")
    bits = base64.b64decode(signature)
    digits = (string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/").replace(
        signature[-3], ""
    )
    others = [
        other for digit in digits if base64.b64decode(other := f"{signature[:-3]}{digit}==") == bits
    ]

    assert len(others) == 15
    for other in others:
        with pytest.raises(SignatureError):
            signing.verify([public], headers | {"webhook-signature": f"v1a,{other}"}, BODY, NOW)


DIAGNOSES = [
    ("right", lambda h, b: (SHARED, h, b, NOW), None, ""),
    ("missing", lambda h, b: (SHARED, {}, b, NOW), "headers", "webhook-id is missing"),
    ("other scheme", lambda h, b: (SHARED, {"Stripe-Signature": "t=1"}, b, NOW), "headers",
     "signed in the form of Stripe"),
    ("old", lambda h, b: (SHARED, h, b, NOW + 900), "timestamp", "900 s old"),
    ("form", lambda h, b: (SHARED.replace("=", ""), h, b, NOW), "secret", "padding"),
    ("other key", lambda h, b: (OLDER, h, b, NOW), "signature", "another secret"),
    ("spaces", lambda h, b: (SHARED, h, json.dumps(json.loads(b)).encode(), NOW), "signature",
     "parsed and written again"),
    ("keys", lambda h, b: (SHARED, h, b'{"b":"\xc3\xab","a":1}', NOW), "signature",
     "parsed and written again"),
    ("newline", lambda h, b: (SHARED, h, b + b"\r\n", NOW), "signature", "at its end"),
    ("mark", lambda h, b: (SHARED, h, b"\xef\xbb\xbf" + b, NOW), "signature", "byte order mark"),
    ("both names", lambda h, b: (
        SHARED, {k.title(): v for k, v in h.items()} | {"Svix-Id": "x", "Svix-Signature": "y"},
        b, NOW), None, ""),
    ("public", lambda h, b: (PUBLIC, h, b, NOW), "signature", "verify with the whsec_"),
    ("private", lambda h, b: (PAIR, h, b, NOW), "secret", "verify with the public key"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "step", "reason"),
    [(case, step, reason) for _, case, step, reason in DIAGNOSES],
    ids=[name for name, *_ in DIAGNOSES],
)
def test_a_diagnosis_names_the_step_that_fails(case: Any, step: str | None, reason: str) -> None:
    """And what a person can do about it."""
    body = b'{"a":1,"b":"\xc3\xab"}'
    headers = signed("standard", SHARED, given=message(body))

    steps = signing.diagnose(*case(headers, body))

    wrong = {name.value: why for name, why in steps if why}
    assert list(wrong) == ([] if step is None else [step])
    assert reason in wrong.get(step or "", "")


def test_a_secret_used_as_text_is_told() -> None:
    """The commonest mistake beside the body's: the key is what follows whsec_, decoded (W013)."""
    content = f"{ID}.{NOW}.".encode() + BODY
    digest = hmac.new(SHARED.encode(), content, hashlib.sha256).digest()
    headers = {
        "webhook-id": ID, "webhook-timestamp": str(NOW),
        "webhook-signature": "v1," + base64.b64encode(digest).decode(),
    }  # fmt: skip

    *_, (step, why) = signing.diagnose(SHARED, headers, BODY, NOW)

    assert step.value == "signature"
    assert "decode what follows whsec_" in (why or "")
