"""How values read on a page: times, sizes, numbers, ids. Template filters."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from urllib.parse import urlsplit
from uuid import UUID

from flask import g
from markupsafe import Markup, escape

from webhooks import ids
from webhooks.attempt import ErrorClass
from webhooks.dashboard.site import blueprint
from webhooks.db import EVER_SINCE, FOREVER

# What a capped count stops at: one more means "more than this".
COUNT_CAP = 10_000

NOTHING = "—"

STATES = {
    "pending": "Pending",
    "in_flight": "In flight",
    "scheduled": "Scheduled",
    "delivered": "Delivered",
    "dead_lettered": "Dead-lettered",
    "cancelled": "Cancelled",
}

TRIGGERS = {"schedule": "automatic", "manual": "by hand", "bulk": "bulk replay"}

ERRORS: dict[str | None, str] = {
    ErrorClass.DNS: "Name not found",
    ErrorClass.CONNECT: "No connection",
    ErrorClass.TLS: "TLS failed",
    ErrorClass.TIMEOUT: "Timed out",
    ErrorClass.PROTOCOL: "Not HTTP",
    ErrorClass.BLOCKED_ADDRESS: "Address not allowed",
    ErrorClass.INVALID_URL: "URL not usable",
    ErrorClass.REDIRECT: "Redirect, not followed",
    ErrorClass.HTTP_4XX: "Client error",
    ErrorClass.HTTP_5XX: "Server error",
    ErrorClass.WORKER_LOST: "Worker lost",
    ErrorClass.INTERNAL: "Could not be sent",
}

UNITS = ((60, 1, "s"), (3600, 60, "min"), (172_800, 3600, "h"), (float("inf"), 86_400, "d"))


@blueprint.app_template_filter("state_name")
def state_name(status: str) -> str:
    """A delivery's state as a label."""
    return STATES.get(status, status)


@blueprint.app_template_filter("trigger_name")
def trigger_name(trigger: str) -> str:
    """What started an attempt, in words."""
    return TRIGGERS.get(trigger, trigger)


@blueprint.app_template_filter("error_name")
def error_name(error_class: str | None) -> str:
    """An error class in words."""
    return ERRORS.get(error_class, error_class or "Failed")


@blueprint.app_template_filter("http_status")
def http_status(code: int) -> str:
    """A status code with its phrase, for example "503 Service Unavailable"."""
    try:
        return f"{code} {HTTPStatus(code).phrase}"
    except ValueError:
        return str(code)


@blueprint.app_template_filter("capped")
def capped(count: int, cap: int = COUNT_CAP) -> str:
    """A count with separators; one that was cut off reads like 10,000+."""
    return f"{cap:,}+" if count > cap else f"{count:,}"


@blueprint.app_template_filter("ago")
def ago(moment: datetime | None) -> Markup:
    """ "2 min ago" or "in 41 s", with the exact time as its tooltip."""
    return _time_tag(moment, "relative")


@blueprint.app_template_filter("age")
def age(moment: datetime | None) -> Markup:
    """How long ago a moment was, for example "41 s"."""
    return _time_tag(moment, "age")


@blueprint.app_template_filter("clock")
def clock(moment: datetime | None) -> Markup:
    """The exact time with its zone."""
    return _time_tag(moment, None)


def relative(seconds: float, kind: str = "relative") -> str:
    """Words for a moment ``seconds`` ahead (negative: ago)."""
    size = abs(seconds)
    amount = next(f"{int(size // step)} {unit}" for below, step, unit in UNITS if size < below)
    if kind == "age":
        return amount
    if size < 1:
        return "now"
    return f"in {amount}" if seconds > 0 else f"{amount} ago"


def exact(moment: datetime) -> str:
    """Seconds and zone, for example 2026-11-30 14:03:05 UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


@blueprint.app_template_filter("milliseconds")
def milliseconds(value: float | None) -> str:
    """A duration given in milliseconds: "84 ms" or "12.3 s"."""
    if value is None:
        return NOTHING
    if value < 9.95:
        return f"{value:.1f} ms"
    return f"{value:.0f} ms" if value < 999.5 else f"{value / 1000:.3g} s"


@blueprint.app_template_filter("size")
def size(count: int | None) -> str:
    """A size in bytes: "312 B" or "1.2 kB"."""
    if count is None:
        return NOTHING
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:.1f} kB" if count < 999_950 else f"{count / 1e6:.1f} MB"


@blueprint.app_template_filter("public_id")
def public_id(value: UUID, kind: str) -> str:
    """A row's id as everybody outside sees it."""
    return ids.encode(kind, value)


@blueprint.app_template_filter("shorten")
def shorten(text: str, start: int = 10, end: int = 5) -> str:
    """An id with its middle left out."""
    return text if len(text) <= start + end + 1 else f"{text[:start]}…{text[-end:]}"


@blueprint.app_template_filter("short_url")
def short_url(url: str | None) -> str:
    """Host and path of a URL, without its scheme, cut where it gets long."""
    if not url:
        return "deleted endpoint"
    scheme, mark, rest = url.partition("://")
    shown = (rest if mark and scheme in ("http", "https") else url).rstrip("/")
    return shown if len(shown) <= 48 else f"{shown[:47]}…"


@blueprint.app_template_filter("host")
def host(url: str | None) -> str:
    """Host and port of a URL."""
    if not url:
        return "deleted endpoint"
    try:
        return urlsplit(url).netloc or url[:48]
    except ValueError:
        return url[:48]


def _time_tag(moment: datetime | None, kind: str | None) -> Markup:
    if moment is None or moment in (FOREVER, EVER_SINCE):
        return escape(NOTHING)
    shown = exact(moment)
    if kind is None:
        return Markup('<time datetime="{}">{}</time>').format(moment.isoformat(), shown)
    words = relative((moment - g.now).total_seconds(), kind)
    return Markup('<time datetime="{}" title="{}" data-time="{}">{}</time>').format(
        moment.isoformat(), shown, kind, words
    )
