"""Settings: read from the environment, checked at start, frozen."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from webhooks.settings import Settings, SettingsError


def refused(**env: str) -> str:
    with pytest.raises(SettingsError) as caught:
        Settings.from_env(env)
    return str(caught.value)


def test_empty_environment_gives_production_defaults() -> None:
    """Production, https only, nothing allowed beyond public addresses."""
    settings = Settings.from_env({"PATH": "/usr/bin", "HOME": "/root"})

    assert settings == Settings()
    assert (settings.mode, settings.development, settings.allow_http) == (
        "production",
        False,
        False,
    )
    assert (settings.allow_cidrs, settings.deny_cidrs) == ((), ())
    assert (settings.attempt_timeout_s, settings.connect_timeout_s) == (20.0, 5.0)
    assert settings.max_payload_bytes == 262_144


def test_every_kind_of_value_is_read() -> None:
    """Text, truth values, whole and other numbers, networks."""
    settings = Settings.from_env(
        {
            "DATABASE_URL": "postgresql://u:p@h/d",
            "WEBHOOKS_MODE": "development",
            "WEBHOOKS_ALLOW_HTTP": "TRUE",
            "WEBHOOKS_ALLOW_CIDRS": "127.0.0.0/8, ::1/128,10.1.2.3,",
            "WEBHOOKS_MAX_IN_FLIGHT": "64",
            "WEBHOOKS_ATTEMPT_TIMEOUT_S": "2.5",
        }
    )

    assert settings.database_url == "postgresql://u:p@h/d"
    assert settings.development
    assert settings.allow_http is True
    assert settings.allow_cidrs == tuple(map(ip_network, ("127.0.0.0/8", "::1/128", "10.1.2.3/32")))
    assert (settings.max_in_flight, settings.attempt_timeout_s) == (64, 2.5)


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("true", True), ("0", False), ("False", False)]
)
def test_truth_values(text: str, value: bool) -> None:
    """1, 0, true and false in any case, and nothing else."""
    assert Settings.from_env({"WEBHOOKS_ALLOW_HTTP": text}).allow_http is value


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("WEBHOOKS_ALLOW_HTTP", "yes", "true or false"),
        ("WEBHOOKS_ALLOW_HTTP", "", "true or false"),
        ("WEBHOOKS_ALLOW_CIDRS", "10.0.0.1/8", "networks such as 10.0.0.0/8"),
        ("WEBHOOKS_DENY_CIDRS", "example.com", "networks"),
        ("WEBHOOKS_DENY_HOSTS", "https://a.example", "host names such as hooks.example.com"),
        ("WEBHOOKS_DENY_HOSTS", "a.*.example", "host names"),
        ("WEBHOOKS_DENY_HOSTS", "bücher.example", "host names"),
        ("WEBHOOKS_MAX_IN_FLIGHT", "0", "a whole number from 1 to 10000"),
        ("WEBHOOKS_MAX_IN_FLIGHT", "10001", "a whole number"),
        ("WEBHOOKS_MAX_IN_FLIGHT", "5.5", "a whole number"),
        ("WEBHOOKS_MAX_IN_FLIGHT", "", "a whole number"),
        ("WEBHOOKS_ATTEMPT_TIMEOUT_S", "0.5", "a number from 1 to 60"),
        ("WEBHOOKS_ATTEMPT_TIMEOUT_S", "61", "a number from 1 to 60"),
        ("WEBHOOKS_ATTEMPT_TIMEOUT_S", "nan", "a number"),
        ("WEBHOOKS_ATTEMPT_TIMEOUT_S", "inf", "a number"),
        ("WEBHOOKS_ATTEMPT_TIMEOUT_S", "20s", "a number"),
        ("WEBHOOKS_MODE", "prod", "production or development"),
        ("WEBHOOKS_LOG_LEVEL", "loud", "debug, info, warning or error"),
        ("WEBHOOKS_HEARTBEAT_S", "16", "at most half of WEBHOOKS_LEASE_S (30)"),
    ],
)
def test_wrong_value_stops_the_start(name: str, text: str, expected: str) -> None:
    """The error has the name, the value and the remedy."""
    message = refused(**{name: text})

    assert message.startswith(f"{name}=")
    assert text in message
    assert expected in message


@pytest.mark.parametrize(
    "text",
    ["proxy:3128", "https://proxy:3128", "socks5://proxy:1080", "http://proxy", "http://proxy:0",
     "http://proxy:65536", "http://proxy:3128/path", "http://a:s3cret@b:c@proxy:1", "http://:3128",
     "http://prö:1", "http://[zz]:1", "http://s3cret word@proxy:1"],
)  # fmt: skip
def test_a_wrong_proxy_is_refused_and_not_shown(text: str) -> None:
    """The remedy is named; what was given may hold a password."""
    message = refused(WEBHOOKS_EGRESS_PROXY=text)

    assert message.startswith("WEBHOOKS_EGRESS_PROXY=…: give http://host:port")
    assert "s3cret" not in message


@pytest.mark.parametrize(
    "text", ["http://proxy:3128", "http://10.0.0.1:1/", "http://[fd00::1]:8080", "http://u:p@h.x:2"]
)
def test_a_right_proxy_is_taken_and_kept_to_itself(text: str) -> None:
    """It is a secret: what shows the settings does not show it."""
    settings = Settings.from_env({"WEBHOOKS_EGRESS_PROXY": text})

    assert settings.egress_proxy == text
    assert text not in repr(settings)


def test_unknown_setting_stops_the_start() -> None:
    """A mistyped name is not ignored, and the nearest right one is suggested."""
    assert refused(WEBHOOKS_ALOW_HTTP="true") == (
        "WEBHOOKS_ALOW_HTTP='true' is not a setting; did you mean WEBHOOKS_ALLOW_HTTP?"
    )
    for name in ("WEBHOOKS_FOO", "WEBHOOKS_NODE_X", "WEBHOOKS_MAX"):
        assert refused(**{name: "1"}) == f"{name}='1' is not a setting; remove it"
    assert refused(WEBHOOKS_MOD="x").endswith("did you mean WEBHOOKS_MODE?")
    assert refused(WEBHOOKS_X="1") == "WEBHOOKS_X='1' is not a setting; remove it"
    assert "is not a setting" in refused(WEBHOOKS_MODE_FILE="/x")


@pytest.mark.parametrize(
    "name", ["WEBHOOKS_KEYRNG", "WEBHOOKS_KEYRING_", "WEBHOOKS_DATABASE_URL", "WEBHOOKS_API_TOKEN"]
)
def test_value_of_a_mistyped_secret_is_not_shown(name: str) -> None:
    """A keyring under a wrong name does not end up in a log."""
    message = refused(**{name: "canary-value"})
    assert message.startswith(f"{name}=… is not a setting")
    assert "canary" not in message


def test_secrets_may_lie_in_files(tmp_path: Path) -> None:
    """NAME_FILE is read without the blanks around."""
    (tmp_path / "keyring").write_text("k1:abc\n")
    env = {"WEBHOOKS_KEYRING_FILE": str(tmp_path / "keyring")}
    assert Settings.from_env(env).keyring == "k1:abc"


def test_secret_files_that_cannot_be_used(tmp_path: Path) -> None:
    """Missing, binary, or beside the variable itself: one clear line each."""
    missing = str(tmp_path / "missing")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")

    assert refused(WEBHOOKS_KEYRING_FILE=missing).startswith(
        f"WEBHOOKS_KEYRING_FILE='{missing}' cannot"
    )
    assert "No such file" in refused(WEBHOOKS_KEYRING_FILE=missing)
    assert "not a text file" in refused(WEBHOOKS_KEYRING_FILE=str(binary))
    both = refused(DATABASE_URL="postgresql://canary", DATABASE_URL_FILE=missing)
    assert both == "DATABASE_URL and DATABASE_URL_FILE are both set; keep one"


def test_secrets_are_not_in_the_repr() -> None:
    """Settings may be logged: no URL with a password, no keyring."""
    settings = Settings(database_url="canary-1", listen_url="canary-2", keyring="canary-3")
    assert "canary" not in repr(settings)


def test_settings_are_frozen() -> None:
    """Nobody changes them at run time."""
    settings: Any = Settings()
    with pytest.raises(FrozenInstanceError):
        settings.mode = "development"


def test_every_variable_has_its_own_name() -> None:
    """One variable a field; all but DATABASE_URL have our prefix."""
    names = [field.metadata["env"] for field in fields(Settings)]
    assert len(set(names)) == len(names)
    assert all(name.startswith("WEBHOOKS_") for name in names if name != "DATABASE_URL")
