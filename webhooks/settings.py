"""Settings: one frozen object, read from the environment and checked at start."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

PREFIX = "WEBHOOKS_"
# A mistyped WEBHOOKS_KEYRING must not show up with its value.
SECRETIVE = re.compile(r"KEY|SECRET|PASS|TOKEN|URL")
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
HOST_NAME = re.compile(rf"(?!.{{254}}){_LABEL}(?:\.{_LABEL})*", re.IGNORECASE | re.ASCII)


PROXY = re.compile(
    r"http://(?:[^@/:\s]+(?::[^@/\s]*)?@)?(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+):([0-9]{1,5})/?",
    re.IGNORECASE | re.ASCII,
)
HIGHEST_PORT = 65_535


class SettingsError(ValueError):
    """A setting is unknown, missing or wrong; the text names it and its value."""


def _setting(
    env: str, default: Any, *, secret: bool = False, low: float = 0, high: float = 1e9,
    item: Callable[[str], Any] = ipaddress.ip_network, items: str = "networks such as 10.0.0.0/8",
) -> Any:  # fmt: skip
    """A field read from ``env``; numbers must lie in [low, high], lists hold ``item``s."""
    meta = {"env": env, "secret": secret, "low": low, "high": high, "item": item, "items": items}
    return field(default=default, repr=not secret, metadata=meta)


def _host_rule(text: str) -> str:
    """A host name, or ``*.`` and one for all names below it, in lower case; ValueError."""
    rule = text.lower().removesuffix(".")
    if not HOST_NAME.fullmatch(rule.removeprefix("*.")):
        raise ValueError
    return rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that an operator can set. ``_s`` are seconds, ``_bytes`` bytes."""

    database_url: str = _setting("DATABASE_URL", "", secret=True)
    listen_url: str = _setting("WEBHOOKS_LISTEN_URL", "", secret=True)
    keyring: str = _setting("WEBHOOKS_KEYRING", "", secret=True)
    data_dir: str = _setting("WEBHOOKS_DATA_DIR", "")
    mode: str = _setting("WEBHOOKS_MODE", "production")
    allow_http: bool = _setting("WEBHOOKS_ALLOW_HTTP", False)
    allow_cidrs: tuple[Network, ...] = _setting("WEBHOOKS_ALLOW_CIDRS", ())
    deny_cidrs: tuple[Network, ...] = _setting("WEBHOOKS_DENY_CIDRS", ())
    deny_hosts: tuple[str, ...] = _setting(
        "WEBHOOKS_DENY_HOSTS", (), item=_host_rule,
        items="host names such as hooks.example.com or *.example.com",
    )  # fmt: skip
    egress_proxy: str = _setting("WEBHOOKS_EGRESS_PROXY", "", secret=True)
    origin: str = _setting("WEBHOOKS_ORIGIN", "")
    ownership_proof: str = _setting("WEBHOOKS_OWNERSHIP_PROOF", "off")
    trusted_proxies: int = _setting("WEBHOOKS_TRUSTED_PROXIES", 0, high=10)
    log_level: str = _setting("WEBHOOKS_LOG_LEVEL", "info")

    max_payload_bytes: int = _setting("WEBHOOKS_MAX_PAYLOAD_BYTES", 262_144, low=1, high=2**24)
    retry_base_s: float = _setting("WEBHOOKS_RETRY_BASE_S", 10.0, low=0.01, high=86_400)
    retry_factor: float = _setting("WEBHOOKS_RETRY_FACTOR", 4.0, low=1, high=100)
    retry_cap_s: float = _setting("WEBHOOKS_RETRY_CAP_S", 86_400.0, low=0.01, high=604_800)
    retry_attempts: int = _setting("WEBHOOKS_RETRY_ATTEMPTS", 10, low=1, high=100)
    attempt_timeout_s: float = _setting("WEBHOOKS_ATTEMPT_TIMEOUT_S", 20.0, low=1, high=60)
    connect_timeout_s: float = _setting("WEBHOOKS_CONNECT_TIMEOUT_S", 5.0, low=0.1, high=60)
    endpoint_max_in_flight: int = _setting("WEBHOOKS_ENDPOINT_MAX_IN_FLIGHT", 50, low=1, high=1000)
    max_in_flight: int = _setting("WEBHOOKS_MAX_IN_FLIGHT", 1000, low=1, high=10_000)
    host_max_in_flight: int = _setting("WEBHOOKS_HOST_MAX_IN_FLIGHT", 500, low=0, high=1_000_000)
    writes_per_minute: int = _setting("WEBHOOKS_WRITES_PER_MINUTE", 600, low=0, high=1_000_000)
    emits_per_second: int = _setting("WEBHOOKS_EMITS_PER_SECOND", 0, low=0, high=1_000_000)
    max_age_days: int = _setting("WEBHOOKS_MAX_AGE_DAYS", 30, low=1, high=3650)
    keep_events_days: int = _setting("WEBHOOKS_KEEP_EVENTS_DAYS", 32, low=1, high=3660)
    keep_deliveries_days: int = _setting("WEBHOOKS_KEEP_DELIVERIES_DAYS", 30, low=1, high=3660)
    keep_attempts_days: int = _setting("WEBHOOKS_KEEP_ATTEMPTS_DAYS", 30, low=1, high=3660)
    keep_audit_days: int = _setting("WEBHOOKS_KEEP_AUDIT_DAYS", 400, low=1, high=36_600)
    transport: str = _setting("WEBHOOKS_TRANSPORT", "auto")
    breaker_failures: int = _setting("WEBHOOKS_BREAKER_FAILURES", 10, low=1, high=1_000_000)
    breaker_first_s: float = _setting("WEBHOOKS_BREAKER_FIRST_S", 30.0, low=0.1, high=3600)
    breaker_longest_s: float = _setting("WEBHOOKS_BREAKER_LONGEST_S", 600.0, low=0.1, high=86_400)
    disable_after_s: float = _setting("WEBHOOKS_DISABLE_AFTER_S", 432_000.0, low=0, high=31_536_000)
    disable_attempts: int = _setting("WEBHOOKS_DISABLE_ATTEMPTS", 20, low=1, high=1_000_000)
    lease_s: float = _setting("WEBHOOKS_LEASE_S", 30.0, low=3, high=3600)
    heartbeat_s: float = _setting("WEBHOOKS_HEARTBEAT_S", 5.0, low=0.1, high=600)

    @property
    def development(self) -> bool:
        """Cookies also travel over plain http, and every page names the mode.

        Which targets are allowed is ``allow_http``'s and ``allow_cidrs``'s matter alone.
        """
        return self.mode == "development"

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Read settings; SettingsError for an unknown name or a wrong value.

        ``NAME_FILE`` gives the path of a file that holds a secret's value.
        """
        known = {f.metadata["env"]: f for f in fields(cls)}
        values: dict[str, Any] = {}
        for name, f in known.items():
            text = _read(env, name, secret=f.metadata["secret"])
            if text is not None:
                values[f.name] = _parse(name, text, f.default, f.metadata)
        files = {f"{n}_FILE" for n, f in known.items() if f.metadata["secret"]}
        for name in env:
            if name.startswith(PREFIX) and name not in known and name not in files:
                shown = "…" if SECRETIVE.search(name) else repr(env[name][:80])
                raise SettingsError(f"{name}={shown} is not a setting; {_nearest(name, known)}")
        settings = cls(**values)
        settings._check()
        return settings

    def _check(self) -> None:
        if self.mode not in ("production", "development"):
            raise SettingsError(f"WEBHOOKS_MODE={self.mode!r}: give production or development")
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise SettingsError(
                f"WEBHOOKS_LOG_LEVEL={self.log_level!r}: give debug, info, warning or error"
            )
        if self.transport not in ("auto", "curl", "requests"):
            raise SettingsError(
                f"WEBHOOKS_TRANSPORT={self.transport!r}: give auto, curl or requests"
            )
        self._check_proof()
        self._check_proxy()
        if self.keep_events_days < self.max_age_days + 2:
            raise SettingsError(
                f"WEBHOOKS_KEEP_EVENTS_DAYS={self.keep_events_days}: at least two days more than "
                f"WEBHOOKS_MAX_AGE_DAYS ({self.max_age_days}), for what is still to be delivered"
            )
        if self.heartbeat_s * 2 > self.lease_s:
            raise SettingsError(
                f"WEBHOOKS_HEARTBEAT_S={self.heartbeat_s:g}: at most half of WEBHOOKS_LEASE_S "
                f"({self.lease_s:g})"
            )

    def _check_proxy(self) -> None:
        """Its value may hold a password, and is not shown."""
        form = PROXY.fullmatch(self.egress_proxy)
        if self.egress_proxy and (form is None or not 0 < int(form[1]) <= HIGHEST_PORT):
            raise SettingsError(
                "WEBHOOKS_EGRESS_PROXY=…: give http://host:port, or http://user:password@host:port "
                "with both percent-encoded; proxies by https or SOCKS are not supported"
            )

    def _check_proof(self) -> None:
        if self.ownership_proof not in ("off", "options", "challenge"):
            raise SettingsError(
                f"WEBHOOKS_OWNERSHIP_PROOF={self.ownership_proof!r}: give off, options or challenge"
            )
        if self.origin and not HOST_NAME.fullmatch(self.origin):
            raise SettingsError(
                f"WEBHOOKS_ORIGIN={self.origin[:80]!r}: give a host name, such as hooks.example.com"
            )
        if self.ownership_proof == "options" and not self.origin:
            raise SettingsError(
                "WEBHOOKS_OWNERSHIP_PROOF='options' needs WEBHOOKS_ORIGIN: the host name that "
                "this installation is known by, such as hooks.example.com"
            )


def _read(env: Mapping[str, str], name: str, *, secret: bool) -> str | None:
    path = env.get(f"{name}_FILE") if secret else None
    if path is None:
        return env.get(name)
    if name in env:
        raise SettingsError(f"{name} and {name}_FILE are both set; keep one")
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise SettingsError(f"{name}_FILE={path!r} cannot be read: {reason}") from error


def _parse(name: str, text: str, default: Any, meta: Mapping[str, Any]) -> Any:
    shown = "…" if meta["secret"] else repr(text[:80])
    try:
        if isinstance(default, bool):
            return {"1": True, "true": True, "0": False, "false": False}[text.lower()]
        if isinstance(default, int | float):
            number = type(default)(text)
            if not meta["low"] <= number <= meta["high"]:
                raise ValueError
            return number
        if isinstance(default, tuple):
            return tuple(meta["item"](part.strip()) for part in text.split(",") if part.strip())
    except (KeyError, ValueError) as error:
        raise SettingsError(f"{name}={shown}: give {_expected(default, meta)}") from error
    return text


def _expected(default: Any, meta: Mapping[str, Any]) -> str:
    if isinstance(default, bool):
        return "true or false"
    if isinstance(default, tuple):
        return f"{meta['items']}, separated by commas"
    kind = "a whole number" if isinstance(default, int) else "a number"
    return f"{kind} from {meta['low']:g} to {meta['high']:g}"


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    import difflib

    # The prefix is left out: with it any two short names look alike.
    names = {each.removeprefix(PREFIX): each for each in known}
    close = difflib.get_close_matches(name.removeprefix(PREFIX), names, n=1, cutoff=0.8)
    return f"did you mean {names[close[0]]}?" if close else "remove it"
