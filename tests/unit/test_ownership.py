"""What counts as an endpoint's yes, and what does not."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhooks import ownership
from webhooks.attempt import Headers
from webhooks.ownership import NotProven, Proof
from webhooks.settings import Settings, SettingsError

ORIGIN = "hooks.example.com"
CHALLENGE = "q4E0jD2yU1hVb7JrX9mZt5oKcW3sPnLaGfBeQiRuTyA"


@pytest.mark.parametrize(
    ("headers", "per_minute"),
    [
        ([("WebHook-Allowed-Origin", ORIGIN)], None),
        ([("webhook-allowed-origin", "*"), ("WEBHOOK-ALLOWED-RATE", "120")], 120),
        ([("WebHook-Allowed-Origin", " \tHooks.Example.COM "), ("WebHook-Allowed-Rate", " 1")], 1),
        ([("WebHook-Allowed-Origin", "*"), ("WebHook-Allowed-Rate", "*")], None),
        ([("Allow", "POST"), ("WebHook-Allowed-Origin", "*"), ("X", "y")], None),
    ],
)
def test_consent_is_our_origin_or_any(headers: Headers, per_minute: int | None) -> None:
    """CloudEvents HTTP webhooks 4.2: case and blanks of the header do not matter."""
    assert ownership.read_consent(tuple(headers), ORIGIN) == Proof(per_minute)


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ([], "lacks WebHook-Allowed-Origin"),
        ([("Allow", "POST, OPTIONS"), ("Access-Control-Allow-Origin", "*")], "lacks"),
        ([("WebHook-Allowed-Rate", "100")], "lacks"),
        ([("WebHook-Request-Origin", ORIGIN)], "lacks"),
        ([("WebHook-Allowed-Origin", "")], "is ''"),
        ([("WebHook-Allowed-Origin", "example.com")], "is 'example.com'"),
        ([("WebHook-Allowed-Origin", "*.example.com")], "is '*.example.com'"),
        ([("WebHook-Allowed-Origin", f"{ORIGIN}.evil.example")], "is 'hooks.example.com.evil"),
        ([("WebHook-Allowed-Origin", f"https://{ORIGIN}")], "is 'https://"),
        ([("WebHook-Allowed-Origin", f"other.example, {ORIGIN}")], "is 'other.example, "),
        ([("WebHook-Allowed-Origin", "other.example"), ("webhook-allowed-origin", "*")], "2 times"),
        ([("WebHook-Allowed-Origin", "*\0")], r"is '*\x00'"),
    ],
)
def test_anything_else_is_no_consent(headers: Headers, why: str) -> None:
    """Another name, a part of one, a list, two answers at once, CORS."""
    with pytest.raises(NotProven, match="WebHook-Allowed-Origin") as caught:
        ownership.read_consent(tuple(headers), ORIGIN)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "rate", ["0", "-1", "1.5", "1e3", "", "many", "10, 20", "\uff11\uff12", "1" * 20, "0x10", "+5"]
)
def test_a_rate_that_cannot_be_read_is_no_consent(rate: str) -> None:
    """A positive whole number or an asterisk: we do not guess how much somebody stands."""
    headers = (("WebHook-Allowed-Origin", "*"), ("WebHook-Allowed-Rate", rate))

    with pytest.raises(NotProven, match="WebHook-Allowed-Rate"):
        ownership.read_consent(headers, ORIGIN)


@given(st.lists(st.tuples(st.text(), st.text())))
def test_whatever_headers_come_only_one_error_is_raised(found: list[tuple[str, str]]) -> None:
    """Consent needs the header, whatever else is there."""
    with pytest.raises(NotProven):
        ownership.read_consent(tuple(found), ORIGIN)


@pytest.mark.parametrize(
    "body",
    [CHALLENGE, f"  {CHALLENGE}\r\n", f'{{"challenge":"{CHALLENGE}"}}',
     f'\n{{ "challenge" : "{CHALLENGE}" }}\n'],
)  # fmt: skip
def test_the_challenge_given_back_is_a_proof(body: str) -> None:
    """As JSON, or its text alone; blanks around it do not matter."""
    assert ownership.read_echo(body.encode(), CHALLENGE) == Proof()


@pytest.mark.parametrize(
    "body",
    [
        "",
        "ok",
        CHALLENGE[:-1],
        CHALLENGE + "A",
        CHALLENGE.swapcase(),
        f'"{CHALLENGE}"',
        f"challenge={CHALLENGE}",
        f'["{CHALLENGE}"]',
        f'{{"challenge":"{CHALLENGE[::-1]}"}}',
        f'{{"challenge":"{CHALLENGE}","ok":true}}',
        f'{{"Challenge":"{CHALLENGE}"}}',
        f'{{"challenge":["{CHALLENGE}"]}}',
        f'{{"data":{{"challenge":"{CHALLENGE}"}}}}',
        '{"challenge":null}',
        '{"challenge":' + "[" * 500 + "]" * 500 + "}",
        '{"challenge":"\\ud800"}',
        "{",
        CHALLENGE + " " * 2_000 + CHALLENGE,
    ],
)
def test_any_other_body_is_none(body: str) -> None:
    """Nothing that a server says to whatever comes, and not what it was sent as a whole."""
    with pytest.raises(NotProven, match="not the challenge"):
        ownership.read_echo(body.encode(), CHALLENGE)


def test_a_server_that_gives_back_what_it_gets_proves_nothing() -> None:
    """An echo service would otherwise agree to everything."""
    payload = ownership.challenge_payload(CHALLENGE, datetime.now(UTC))

    with pytest.raises(NotProven):
        ownership.read_echo(payload, CHALLENGE)


@given(st.binary() | st.binary().map(lambda tail: b'{"challenge":' + tail))
def test_whatever_body_comes_only_one_error_is_raised(body: bytes) -> None:
    """Bytes that are no text and JSON that is broken too."""
    with pytest.raises(NotProven):
        ownership.read_echo(body, CHALLENGE)


def test_the_question_has_the_form_of_an_event() -> None:
    """Type, time in UTC and data, as Standard Webhooks recommends."""
    at = datetime(2026, 11, 30, 15, 3, 5, 250_000, timezone(timedelta(hours=1)))

    assert json.loads(ownership.challenge_payload(CHALLENGE, at)) == {
        "type": "webhooks.ownership",
        "timestamp": "2026-11-30T14:03:05.250Z",
        "data": {"challenge": CHALLENGE},
    }


def test_no_two_challenges_are_alike() -> None:
    """256 random bits each."""
    found = {ownership.new_challenge() for _ in range(100)}

    assert len(found) == 100
    assert {len(each) for each in found} == {43}


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"WEBHOOKS_OWNERSHIP_PROOF": "on"}, "give off, options or challenge"),
        ({"WEBHOOKS_OWNERSHIP_PROOF": "options"}, "needs WEBHOOKS_ORIGIN"),
        ({"WEBHOOKS_ORIGIN": "https://hooks.example.com"}, "give a host name"),
        ({"WEBHOOKS_ORIGIN": "*"}, "give a host name"),
        ({"WEBHOOKS_ORIGIN": "hooks.example.com\r\nX: y"}, "give a host name"),
        ({"WEBHOOKS_ORIGIN": "hooks.example.com\n"}, "give a host name"),
        ({"WEBHOOKS_ORIGIN": ".".join(["a" * 60] * 5)}, "give a host name"),
    ],
)
def test_settings_that_could_not_ask_stop_the_start(env: dict[str, str], told: str) -> None:
    """The name goes into a header of each request: it is a host name and nothing else."""
    with pytest.raises(SettingsError, match=told):
        Settings.from_env(env)


def test_an_origin_is_a_host_name() -> None:
    """Or a single label; hyphens and digits too."""
    for origin in ("hooks.example.com", "localhost", "Hooks-2.example.com", "9.example"):
        env = {"WEBHOOKS_OWNERSHIP_PROOF": "options", "WEBHOOKS_ORIGIN": origin}
        assert Settings.from_env(env).origin == origin
