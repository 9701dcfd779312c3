"""Promise 5: what is secret appears nowhere but in the one answer that shows it, and encrypted."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.canary import Canaries, forms
from tests.house import House
from tests.recorder import Recorder
from tests.stack import Stack, eventually, own_server
from webhooks import schema
from webhooks.secrets import Keyring

# The first test waits for all that the house puts out.
pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

OLD, NEW = Keyring.generate("old"), Keyring.generate("new")
DATABASE_PASSWORD = "canary-of-the-database-0123"
PASSWORD = "canary+of/a person's <password>"
TOKEN = "Bearer canary/of+a~custom=header"
HMAC = "whsec_" + base64.b64encode(bytes(range(200, 240))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(100, 140))).decode()
TEXT = 'canary, a "text" of the customer\'s own\\!'

# What is broken in the database for a while, and how it is mended.
BROKEN = {
    "ALTER TABLE webhooks.api_keys RENAME key_hash TO away":
        "ALTER TABLE webhooks.api_keys RENAME away TO key_hash",
    "ALTER TABLE webhooks.users RENAME password_hash TO away":
        "ALTER TABLE webhooks.users RENAME away TO password_hash",
    "ALTER TABLE webhooks.signing_secrets RENAME kind TO away":
        "ALTER TABLE webhooks.signing_secrets RENAME away TO kind",
    # The server's own text of this error shows the whole row.
    "ALTER TABLE webhooks.signing_secrets ADD CONSTRAINT no CHECK (revoked) NOT VALID":
        "ALTER TABLE webhooks.signing_secrets DROP CONSTRAINT no",
    "ALTER TABLE webhooks.endpoints ADD CONSTRAINT no CHECK (headers IS NULL) NOT VALID":
        "ALTER TABLE webhooks.endpoints DROP CONSTRAINT no",
}  # fmt: skip


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    """Real processes that log all they can, driven through all that could show a secret."""
    with own_server() as server:
        url = server.url("postgres").replace("@", f":{DATABASE_PASSWORD}@", 1)
        schema.upgrade(url)
        env = {
            "WEBHOOKS_KEYRING": f"{NEW},{OLD}", "WEBHOOKS_LOG_LEVEL": "debug",
            "WEBHOOKS_RETRY_BASE_S": "0.1", "WEBHOOKS_RETRY_ATTEMPTS": "2",
        }  # fmt: skip
        receiver = Recorder(answer=lambda nth, request: 500 if "fail" in request.path else 200)
        with receiver, Stack(url, env) as stack:
            stack.start_web()
            stack.start_worker()
            stack.start("webhooks", "scheduler")
            made = House(stack, server, receiver)
            drive(made)
            collect(made)
            yield made


def drive(house: House) -> None:
    """Everything with secrets that an operator, a customer or a fault can do."""
    house.secret("API key", house.stack.key.rpartition("_")[2], key=False)
    house.secret("database password", DATABASE_PASSWORD, key=False)
    house.secret("password", PASSWORD, key=False)
    house.secret("custom header", TOKEN.removeprefix("Bearer "), key=False)
    house.secret("text secret", TEXT, key=False)
    for name, text in (("imported", HMAC), ("other", OTHER)):
        house.secret(name, text)
    for keyring in (OLD, NEW):
        house.secret(f"keyring {keyring[:3]}", keyring.partition(":")[2])
    assert house.command(
        "webhooks", "user", "create", "ana", "--password-stdin", given=PASSWORD
    ) == 0  # fmt: skip
    endpoints = make_endpoints(house)
    deliver(house, endpoints)
    mistakes(house, endpoints[0])
    look_around(house, endpoints)
    faults(house, endpoints[0])
    commands(house)


def make_endpoints(house: House) -> list[str]:
    """With secrets that are made, imported, rotated; and custom headers."""
    url, every = house.receiver.url, {"event_types": ["*"]}
    mine = house.once("made", "/endpoints", {"url": url, **every, "headers": {
        "Authorization": TOKEN, "X-Plain": "plain"}})["id"]  # fmt: skip
    house.once("rotated", f"/endpoints/{mine}/secrets", {})
    theirs = house.api("POST", "/endpoints", {"url": f"{url}/fail", **every, "secret": HMAC,
                       "headers": {"X-Api-Key": TOKEN}}).json()["id"]  # fmt: skip
    house.api("POST", f"/endpoints/{theirs}/secrets", {"secret": OTHER})
    texts = house.api("POST", "/endpoints", {"url": url, **every, "secret": TEXT,
                      "schemes": ["github", "slack"]}).json()["id"]  # fmt: skip
    pair = house.api("POST", "/endpoints", {"url": url, **every, "schemes": ["jwt"]}).json()["id"]
    return [mine, theirs, texts, pair]


def deliver(house: House, endpoints: list[str]) -> None:
    """To receivers that take it and that fail; one secret is damaged afterwards."""
    house.api("POST", "/events", {"type": "invoice.paid", "payload": {"n": 1}})
    finished = {"delivered": 3, "dead_lettered": 1}
    eventually(lambda: house.stack.statuses() == finished, what=f"{house.stack.statuses()}")
    with house.stack.connect() as connection:
        connection.execute(
            "UPDATE webhooks.signing_secrets SET ciphertext = ciphertext || 'AAAA' "
            "WHERE kind = 'text'"
        )
    house.api("POST", "/events", {"type": "invoice.paid", "payload": {"n": 2}})
    finished = {"delivered": 5, "dead_lettered": 3}
    eventually(lambda: house.stack.statuses() == finished, what=f"{house.stack.statuses()}")


def mistakes(house: House, endpoint: str) -> None:
    """Requests that are refused, with secrets in the wrong form, field, place."""
    at = f"/endpoints/{endpoint}"
    for secret in (HMAC[:-1], f"v1,{HMAC}", f" {HMAC}", HMAC.replace("whsec_", "whpk_"), [HMAC], 5):
        assert house.api("POST", f"{at}/secrets", {"secret": secret}).status_code in (400, 422)
    house.api("POST", f"{at}/secrets", {"secrets": HMAC})
    house.api("POST", f"{at}/secrets", f'{{"secret": "{HMAC}'.encode())
    house.api("POST", f"{at}/secrets", {"secret": HMAC, "kind": "ed25519"})
    for headers in ({"X-Token": f"{TOKEN}\r\nX: y"}, {"Host": TOKEN}, {"X-Token": [TOKEN]}, TOKEN):
        assert house.api("PATCH", at, {"headers": headers}).status_code in (400, 422)
    house.api("PATCH", at, {"url": "http://127.0.0.1:1/elsewhere"})
    house.api("PATCH", at, {"headers": {"Authorization": None, "X-Plain": "other"}})
    key = house.stack.key
    assert house.api("GET", "/endpoints", key=f"{key}x").status_code == 401
    house.api("GET", "/endpoints", headers={"Authorization": f"Basic {key}"})
    house.api("POST", "/events", {"type": 5, "payload": 1, "tenant": ["a"]})


def look_around(house: House, endpoints: list[str]) -> None:
    """Every list and page there is, and forms that are refused."""
    for path in ("/endpoints", "/deliveries", "/tenant?tenant=default"):
        house.api("GET", path)
    deliveries = [each["id"] for each in house.stack.get("/deliveries")["data"]]
    for delivery in deliveries:
        house.api("GET", f"/deliveries/{delivery}")
    house.page("/sign-in", {"username": "ana", "password": f"{PASSWORD}."})
    assert house.page("/sign-in", {"username": "ana", "password": PASSWORD}).url.endswith("/")
    for path in ("/", "/endpoints", "/endpoints/new", "/deliveries", "/send"):
        assert house.page(path).status_code == 200
    for delivery in deliveries:
        house.page(f"/deliveries/{delivery}")
    for endpoint in endpoints:
        house.api("GET", f"/endpoints/{endpoint}")
        house.api("GET", f"/endpoints/{endpoint}/secrets")
        for form in ("", "/edit", "/secrets/new", "/delete", "/resume"):
            house.page(f"/endpoints/{endpoint}{form}")
    wrong = {"url": "nonsense", "event_types": "*", "header_name_1": "Authorization",
             "header_value_1": TOKEN}  # fmt: skip
    assert house.page("/endpoints", wrong).status_code == 422
    at = f"/endpoints/{endpoints[0]}"
    assert house.page(f"{at}/secrets", {"kind": "hmac", "secret": f"{HMAC}="}).status_code == 422
    house.page(f"{at}/secrets", {"kind": "hmac", "secret": OTHER, "overlap_s": "3600"})
    requests.get(f"{house.stack.base_url}/.well-known/jwks/{endpoints[3]}.json", timeout=15)


def faults(house: House, endpoint: str) -> None:
    """The database lacks something, or refuses: errors with tracebacks, here and in the worker."""
    for breaks, mends in BROKEN.items():
        with house.stack.connect() as connection:
            connection.execute(breaks)
        try:
            eventually(lambda: 500 in provoke(house, endpoint), what=breaks)
        finally:
            with house.stack.connect() as connection:
                connection.execute(mends)
    with house.stack.connect() as connection:
        connection.execute("ALTER TABLE webhooks.signing_secrets RENAME ciphertext TO away")
        house.api("POST", "/events", {"type": "invoice.paid", "payload": {"n": 3}})
        worker = house.stack.processes[1]
        eventually(lambda: "UndefinedColumn" in worker.output())
        connection.execute("ALTER TABLE webhooks.signing_secrets RENAME away TO ciphertext")


def provoke(house: House, endpoint: str) -> set[int]:
    """Requests with secrets in them; their status codes."""
    new = {"url": house.receiver.url, "event_types": ["never"], "headers": {"X-Key": TOKEN}}
    answers = [
        house.api("POST", f"/endpoints/{endpoint}/secrets", {"secret": HMAC}),
        house.api("POST", "/endpoints", {**new, "secret": HMAC}),
        house.page("/sign-in", {"username": "ana", "password": PASSWORD}),
        house.page(f"/endpoints/{endpoint}"),
    ]
    return {answer.status_code for answer in answers}


def commands(house: House) -> None:
    """What an operator runs, also with wrong settings."""
    for words in ("doctor --json", "secrets status", "secrets rotate --dry-run", "key list"):
        assert house.command("webhooks", *words.split()) in (0, 1)
    nowhere = f"postgresql://webhooks:{DATABASE_PASSWORD}@127.0.0.1:1/nowhere"
    for words, env in (
        ("secrets status", {"WEBHOOKS_KEYRING": NEW.rstrip("=")}),
        ("secrets status", {"WEBHOOKS_KEYRNG": NEW}),
        ("doctor", {"WEBHOOKS_KEYRING": Keyring.generate("third")}),
        ("doctor", {"DATABASE_URL": nowhere}),
        ("key list", {"DATABASE_URL": f"mysql://a:{DATABASE_PASSWORD}@b/c"}),
    ):
        assert house.command("webhooks", *words.split(), env=env) == 2
    assert house.command(
        "gunicorn", "--config", "python:webhooks.web", "webhooks.web:app()",
        env={"WEBHOOKS_KEYRING": Keyring.generate("third")},
    ) != 0  # fmt: skip
    received = house.receiver.requests[0]
    lines = "".join(f"{name}: {value}\n" for name, value in received.headers.items())
    house.command("webhooks", "verify", "-", env={"SIGNING_SECRET": HMAC}, given=f"{lines}\n{{}}")


def collect(house: House) -> None:
    """What the processes wrote, the server's log, the metrics, a dump."""
    worker = house.stack.processes[1]
    for path in ("metrics", "healthz"):
        answer = requests.get(f"http://127.0.0.1:{worker.port}/{path}", timeout=15)
        house.said[f"worker's /{path}"] = answer.content
    for name, process in zip(("web", "worker", "scheduler"), house.stack.processes, strict=True):
        house.said[f"log of {name}"] = process.output().encode()
        house.said[f"arguments of {name}"] = Path(f"/proc/{process.pid}/cmdline").read_bytes()
    house.said["log of PostgreSQL"] = (house.server.cluster / "server.log").read_bytes()
    house.said["dump"] = house.dump()


def test_no_answer_or_page_shows_a_secret(house: House) -> None:
    """Lists, details, forms, refusals and faults; 50 answers and more of each kind (W152)."""
    assert house.leaks("API") == {}
    assert house.leaks("page") == {}
    assert sum(what.startswith("API") for what in house.said) > 50
    assert sum(what.startswith("page") for what in house.said) > 50
    codes = {what.split()[-2] for what in house.said if what.startswith(("API", "page"))}
    assert {"200", "201", "202", "400", "401", "404", "422", "500"} <= codes


def test_a_secret_that_was_made_is_shown_once(house: House) -> None:
    """Its own answer shows it and no other; that also shows that the search finds."""
    for name, answer in zip(("made", "rotated"), house.shown_once, strict=True):
        found = house.canaries.found(answer.encode())
        assert found
        assert all(each.startswith(name) for each in found)


def test_no_log_shows_a_secret(house: House) -> None:
    """Neither the processes', at debug level and with tracebacks, nor the database server's."""
    assert house.leaks("log of", "arguments of", "worker's") == {}
    assert b"UndefinedColumn" in house.said["log of web"]
    assert b"CheckViolation" in house.said["log of web"]
    assert b"UndefinedColumn" in house.said["log of worker"]
    assert b"Failing row contains" in house.said["log of PostgreSQL"]
    assert b"webhooks_attempts_total" in house.said["worker's /metrics"]


def test_no_command_shows_a_secret(house: House) -> None:
    """Also with wrong settings, which it names without their values."""
    assert house.leaks("command") == {}
    said = b"".join(data for what, data in house.said.items() if what.startswith("command"))
    assert b"WEBHOOKS_KEYRNG" in said
    assert b"Not verified" in said


def test_a_dump_holds_secrets_encrypted_only(house: House) -> None:
    """Five signing secrets and three sets of headers at least, all under the first key."""
    assert house.leaks("dump") == {}
    assert house.said["dump"].count(b"v1:new:") >= 8


def test_receivers_get_their_custom_header_and_no_other_secret(house: House) -> None:
    """Each endpoint's own header, in this header alone."""
    for request in house.receiver.requests:
        own = [name for name in ("Authorization", "X-Api-Key") if name in request.headers]
        rest = {name: value for name, value in request.headers.items() if name not in own}
        assert house.canaries.found(repr((request.path, rest, request.body)).encode()) == []
        assert [request.headers[name] for name in own] == [TOKEN] * len(own)
        assert len(own) <= 1
    assert {name for request in house.receiver.requests for name in request.headers} >= {
        "Authorization", "X-Api-Key",
    }  # fmt: skip


def test_a_leak_into_the_database_is_found(house: House) -> None:
    """A secret that is put into a column, in base64 beside other text, is seen in the dump."""
    planted = base64.b64encode(f"user:{HMAC}".encode()).decode()
    with house.stack.connect() as connection:
        connection.execute("UPDATE webhooks.tenants SET name = %s", [planted])
    found = house.canaries.found(house.dump())
    with house.stack.connect() as connection:
        connection.execute("UPDATE webhooks.tenants SET name = 'Default'")

    assert found
    assert all(name.startswith("imported, ") and "base64" in name for name in found)


@pytest.mark.parametrize("form", forms(b""))
@pytest.mark.parametrize("secret", [HMAC, NEW, TEXT], ids=["imported", "keyring", "text"])
def test_a_leak_in_any_form_is_found(secret: str, form: str) -> None:
    """Wherever it stands among other bytes."""
    canaries = Canaries()
    canaries.add("it", secret)

    data = b"level=debug, body=" + forms(secret.encode())[form] + b", and so on"

    assert f"it, {form}" in canaries.found(data)
    assert canaries.found(b"level=debug, body=, and so on") == []
