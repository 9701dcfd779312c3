"""docs/signing.md: its programs are run, each against right, wrong and hostile requests."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jwt
import pytest
import requests
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from http_message_signatures import HTTPMessageSigner, HTTPSignatureKeyResolver
from http_message_signatures.algorithms import ED25519

from tests.node import VERIFIERS
from tests.support import require
from webhooks import signing
from webhooks.signing import Kind, Message, Scheme, Signer, keys

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "signing.md").read_text(encoding="utf-8")
PROGRAMS = {
    (language, name): code
    for language, name, code in re.findall(r"^```(\w+) (\w+)\n(.*?)^```$", PAGE, re.M | re.S)
}
VECTORS = json.loads((ROOT / "tests" / "data" / "vectors.json").read_text(encoding="utf-8"))
URL = "https://hooks.example/in?x=1"
BODY = b'{"amount": 1.10, "name": "Zo\xc3\xab \xe2\x98\x83"}\n'
ID = "evt_01h455vb4pex5vsknk084sn02q"
SHARED, OLDER, FOREIGN = (signing.new_secret() for _ in range(3))
PAIR, OTHER_PAIR = (signing.new_secret(Kind.ED25519) for _ in range(2))
TEXT = "It's a Secret to Everybody ☃"

Case = tuple[str, dict[str, str], bytes, Any, bool]
Cases = Sequence[Case]


def sign(scheme: str, *secrets: str, shift_s: int = 0, body: bytes = BODY) -> dict[str, str]:
    """The headers of a request signed so many seconds from now, by lower-case names."""
    keys = [(f"sec_{n}", signing.import_secret(text)) for n, text in enumerate(secrets)]
    message = Message(ID, int(time.time()) + shift_s, body, URL, "a.b")
    headers = Signer([scheme], keys).headers(message)
    return {"webhook-id": ID} | {name.lower(): value for name, value in headers}


def public(secret: str) -> bytes:
    return signing.import_secret(secret).public or b""


def standard_cases() -> list[Case]:
    """Requests for `verify` and `verify_v1a`, each with the verdict that is right."""
    found: list[Case] = []
    for function, secret, older, key, foreign in (
        ("verify", SHARED, OLDER, SHARED, FOREIGN),
        ("verify_v1a", PAIR, OTHER_PAIR, signing.show_public(public(PAIR)),
         signing.show_public(public(signing.new_secret(Kind.ED25519)))),
    ):  # fmt: skip
        good = sign("standard", secret)
        found += [
            (function, good, BODY, key, True),
            (function, sign("standard", older, secret), BODY, key, True),
            (function, sign("standard", PAIR, SHARED), BODY, key, True),
            (function, sign("standard", secret, shift_s=-250), BODY, key, True),
            (function, sign("standard", secret, shift_s=250), BODY, key, True),
            (function, sign("standard", secret, body=b"\x00\xff"), b"\x00\xff", key, True),
            (function, sign("standard", secret, shift_s=-400), BODY, key, False),
            (function, sign("standard", secret, shift_s=400), BODY, key, False),
            (function, good, BODY + b"\n", key, False),
            (function, good, BODY, foreign, False),
            (function, good | {"webhook-id": "evt_2"}, BODY, key, False),
        ]
        for name in ("webhook-id", "webhook-timestamp", "webhook-signature"):
            left = {other: value for other, value in good.items() if other != name}
            found.append((function, left, BODY, key, False))
        signature = good["webhook-signature"]
        odd = ["", " ", ",", "v1", "v1,", "v1a", "v1a,", "v1,é", "v1a,AAAA", "v1a,!",
               signature[:-4], "v0" + signature[signature.index(",") :]]  # fmt: skip
        found += [(function, good | {"webhook-signature": s}, BODY, key, False) for s in odd]
        now = good["webhook-timestamp"]
        found += [
            (function, good | {"webhook-timestamp": text}, BODY, key, False)
            for text in ("", "soon", f" {now}", f"+{now}", f"{now}\n", f"{now}.0", "9" * 30, "١٢")
        ]
    return found


def compatible_cases() -> list[Case]:
    """Requests in the forms of other senders, for those senders' functions."""
    found: list[Case] = []
    for scheme in ("github", "shopify", "slack", "stripe"):
        function, timed = f"verify_{scheme}", scheme in ("slack", "stripe")
        for secret in (TEXT, SHARED):
            good = sign(scheme, secret)
            found += [
                (function, good, BODY, secret, True),
                (function, good, BODY + b" ", secret, False),
                (function, good, BODY, FOREIGN, False),
                (function, {}, BODY, secret, False),
                (function, sign(scheme, secret, shift_s=-400), BODY, secret, not timed),
            ]
    found.append(("verify_stripe", sign("stripe", SHARED, OLDER), BODY, OLDER, True))
    found.append(("verify_stripe", {"stripe-signature": "t,v1,=,v1="}, BODY, SHARED, False))
    return found


def judge(program: Callable[[Path], Sequence[str]], folder: Path, cases: Cases) -> None:
    """Run a program on the cases, and compare its verdicts with the right ones."""
    file = folder / "cases.json"
    names = ("function", "headers", "body", "key")
    lines = [
        dict(zip(names, (name, headers, base64.b64encode(body).decode(), key), strict=True))
        for name, headers, body, key, _ in cases
    ]
    file.write_text(json.dumps(lines), encoding="utf-8")
    run = subprocess.run(program(file), cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    verdicts = json.loads(run.stdout)
    assert len(verdicts) == len(cases)
    wrong = [case for case, verdict in zip(cases, verdicts, strict=True) if verdict is not case[4]]
    assert wrong == []


def write(folder: Path, name: str, *parts: str) -> Path:
    file = folder / name
    file.write_text("\n".join(parts), encoding="utf-8")
    return file


def runner(name: str) -> str:
    return (VERIFIERS / name).read_text(encoding="utf-8")


def python(*names: str) -> dict[str, Any]:
    """What the page's Python defines."""
    defined: dict[str, Any] = {}
    for name in names:
        exec(compile(PROGRAMS["python", name], name, "exec"), defined)
    return defined


def test_every_language_is_there() -> None:
    """Both forms of Standard Webhooks in six of them; the others where they are named."""
    languages = ("python", "javascript", "go", "ruby", "php", "sh")
    wanted = {(language, name) for language in languages for name in ("standard", "v1a")}
    for name in ("compatible", "jwt"):
        wanted |= {("python", name), ("javascript", name)}
    assert PROGRAMS.keys() == wanted | {("python", "rfc9421")}


def test_every_scheme_and_kind_is_explained() -> None:
    """The tables name them all, and no header that is not sent."""
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE, re.M))
    assert rows.keys() == set(Scheme) | set(Kind)
    for scheme in Scheme:
        secrets = [signing.new_secret(kind) for kind in signing.needed_kinds([scheme], set())]
        sent = sign(scheme, *secrets).keys() - {"webhook-id"}
        shown = {name.lower() for name in re.findall(r"`([\w-]+)`", rows[scheme])}
        assert shown - {"webhook-id"} == sent


@pytest.mark.parametrize("names", [("standard", "v1a"), ("compatible",)])
def test_python_programs(names: tuple[str, ...]) -> None:
    """Right requests pass, wrong and hostile ones do not, and none is an exception."""
    defined = python(*names)
    cases = standard_cases() if "standard" in names else compatible_cases()

    assert [case for case in cases if defined[case[0]](*case[1:4]) is not case[4]] == []


def test_javascript_programs(javascript_verifiers: Path) -> None:
    """The same requests, the same verdicts; tokens by the key set too."""
    folder = javascript_verifiers.parent
    parts = [PROGRAMS["javascript", name] for name in ("standard", "v1a", "compatible", "jwt")]
    program = write(folder, "program.cjs", *parts, runner("main.js"))
    key_set = {"url": URL, "keys": signing.jwks([("sec_0", public(PAIR))])}
    token = sign("jwt", PAIR)
    tokens: list[Case] = [
        ("verify_jwt", token, BODY, key_set, True),
        ("verify_jwt", token, BODY + b" ", key_set, False),
        ("verify_jwt", token, BODY, key_set | {"url": "https://else.example"}, False),
        ("verify_jwt", sign("jwt", OTHER_PAIR), BODY, key_set, False),
        ("verify_jwt", sign("jwt", PAIR, shift_s=-400), BODY, key_set, False),
        ("verify_jwt", {}, BODY, key_set, False),
    ]

    cases = [*standard_cases(), *compatible_cases(), *tokens]
    judge(lambda file: ["node", str(program), str(file)], folder, cases)


@pytest.mark.timeout(300)  # on a new machine Go compiles its library first
def test_go_programs(tmp_path: Path) -> None:
    """The same requests, the same verdicts."""
    require(shutil.which("go"), "go", "apt-get install golang-go")
    write(tmp_path, "main.go", runner("main.go"))
    for name in ("standard", "v1a"):
        write(tmp_path, f"{name}.go", PROGRAMS["go", name])
    files = ["main.go", "standard.go", "v1a.go"]

    build = ["go", "build", "-o", "program", *files]
    built = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert built.returncode == 0, built.stderr
    judge(lambda file: [str(tmp_path / "program"), str(file)], tmp_path, standard_cases())


@pytest.mark.parametrize(
    ("language", "command", "install"),
    [("ruby", "ruby", "ruby"), ("php", "php", "php-cli")],
    ids=["ruby", "php"],
)
def test_ruby_and_php_programs(language: str, command: str, install: str, tmp_path: Path) -> None:
    """The same requests, the same verdicts."""
    require(shutil.which(command), command, f"apt-get install {install}")
    parts = [PROGRAMS[language, name] for name in ("standard", "v1a")]
    suffix = {"ruby": "rb", "php": "php"}[language]
    program = write(tmp_path, f"program.{suffix}", *parts, runner(f"main.{suffix}"))

    judge(lambda file: [command, str(program), str(file)], tmp_path, standard_cases())


def shell(name: str, folder: Path, body: bytes, **variables: str) -> tuple[int, str]:
    require(shutil.which("openssl"), "openssl", "apt-get install openssl")
    (folder / "body").write_bytes(body)
    program = write(folder, "program.sh", "set -e", PROGRAMS["sh", name])
    run = subprocess.run(
        ["sh", str(program)],
        cwd=folder, env={"PATH": "/usr/bin:/bin", **variables}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return run.returncode, run.stdout


def test_openssl_makes_the_published_signatures(tmp_path: Path) -> None:
    """Every vector: keys with any last byte, bodies of any kind."""
    for vector in VECTORS["standard_webhooks_v1"]:
        variables = {"ID": vector["id"], "TIMESTAMP": str(vector["ts"]), "SECRET": vector["secret"]}
        made = shell("standard", tmp_path, vector["body"].encode(), **variables)
        assert made == (0, vector["sig"] + "\n"), vector["name"]


def test_openssl_verifies_the_published_signatures_of_key_pairs(tmp_path: Path) -> None:
    """And refuses a changed body."""
    for vector in VECTORS["standard_webhooks_v1a"]:
        variables = {
            "ID": vector["id"], "TIMESTAMP": str(vector["ts"]),
            "PUBLIC_KEY": vector["pk"], "SIGNATURE": vector["sig"],
        }  # fmt: skip
        body = vector["body"].encode()
        code, shown = shell("v1a", tmp_path, body, **variables)
        assert (code, shown) == (0, "Signature Verified Successfully\n"), vector["id"]
        assert shell("v1a", tmp_path, body + b" ", **variables)[0] != 0


def test_http_message_signatures_in_python() -> None:
    """Verified for this body, this target and five minutes; also while two keys are live."""
    verify = python("rfc9421")["verify_rfc9421"]
    known = {"sec_0": Ed25519PublicKey.from_public_bytes(public(PAIR))}
    plain = {"content-type": "application/json"}
    good = plain | sign("rfc9421", PAIR)

    assert verify(URL, good, BODY, known)
    assert not verify(URL, good, BODY + b" ", known)
    assert not verify(URL.replace("x=1", "x=2"), good, BODY, known)
    assert not verify(URL, good | {"webhook-id": "evt_2"}, BODY, known)
    assert not verify(URL, plain | sign("rfc9421", OTHER_PAIR), BODY, known)
    assert not verify(URL, plain | sign("rfc9421", PAIR, shift_s=-400), BODY, known)
    assert not verify(URL, plain, BODY, known)
    assert not verify(URL, good, BODY, {})
    assert verify(URL, covering("@method", "@target-uri", "webhook-id"), BODY, known)
    assert not verify(URL, covering("@method", "webhook-id"), BODY, known)


def covering(*components: str) -> dict[str, str]:
    """The headers of a request by the right key, over these components and the digest."""
    request = requests.Request(
        "POST", URL, headers={"webhook-id": ID, "content-type": "application/json"}, data=BODY
    ).prepare()

    class Keys(HTTPSignatureKeyResolver):
        def resolve_private_key(self, key_id: str) -> object:
            return keys.private_key(signing.import_secret(PAIR))

    HTTPMessageSigner(signature_algorithm=ED25519, key_resolver=Keys()).sign(
        request, key_id="sec_0", covered_component_ids=components, tag="webhook", body=BODY
    )
    return {name.lower(): value for name, value in request.headers.items()}


def test_tokens_in_python() -> None:
    """Verified for this body, this target, a key of the set, and five minutes."""
    verify = python("jwt")["verify_jwt"]

    class Keys:
        """What `PyJWKClient` does, without fetching."""

        found = jwt.PyJWKSet.from_dict(signing.jwks([("sec_0", public(PAIR))]))

        def get_signing_key_from_jwt(self, token: str) -> jwt.PyJWK:
            return self.found[jwt.get_unverified_header(token)["kid"]]

    good = sign("jwt", PAIR)

    assert verify(URL, good, BODY, Keys())
    assert not verify(URL, good, BODY + b" ", Keys())
    assert not verify("https://else.example", good, BODY, Keys())
    assert not verify(URL, sign("jwt", OTHER_PAIR), BODY, Keys())
    assert not verify(URL, sign("jwt", PAIR, shift_s=-400), BODY, Keys())
    assert not verify(URL, {}, BODY, Keys())
