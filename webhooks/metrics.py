"""Prometheus metrics of the delivery workers; labels have few values, never ids or URLs."""

from __future__ import annotations

import os
import time
from collections import Counter as Counts
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from webhooks.attempt import ErrorClass, Outcome

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 60)

ATTEMPTS = Counter(
    "webhooks_attempts_total",
    "Attempts settled, by outcome and error class",
    ["outcome", "error_class"],
)
FENCED = Counter("webhooks_fenced_total", "Outcomes dropped because the lease was lost")
LEASES_LOST = Counter("webhooks_leases_lost_total", "Times a worker had to register anew")
RECLAIMED = Counter("webhooks_reclaimed_total", "Deliveries taken back from dead workers")
PROMOTED = Counter("webhooks_promoted_total", "Retries that fell due")
EXPANDED = Counter("webhooks_expanded_total", "Deliveries made from large fan-outs")
ERRORS = Counter("webhooks_loop_errors_total", "Errors a worker's loop survived", ["loop"])
ATTEMPT_SECONDS = Histogram("webhooks_attempt_seconds", "Duration of attempts", buckets=SECONDS)
CLAIM_SECONDS = Histogram("webhooks_claim_seconds", "Duration of claims", buckets=SECONDS)
SETTLE_SECONDS = Histogram("webhooks_settle_seconds", "Duration of settles", buckets=SECONDS)
IN_FLIGHT = Gauge(
    "webhooks_in_flight", "Deliveries in this process's hands", multiprocess_mode="livesum"
)
CAPACITY = Gauge("webhooks_capacity", "Deliveries it can hold", multiprocess_mode="livesum")
# CLOCK_MONOTONIC is the same for every process of a machine.
TICKED = Gauge(
    "webhooks_ticked_monotonic_seconds",
    "When the dispatcher last went round, by the monotonic clock",
    multiprocess_mode="livemin",
)


BEATEN = Gauge(
    "webhooks_beaten_monotonic_seconds",
    "When the worker last renewed its lease in the database, by the monotonic clock",
    multiprocess_mode="livemin",
)


def count_attempts(outcomes: Iterable[Outcome]) -> None:
    """Add settled outcomes to their counters and to the histogram of durations."""
    errors: Counts[ErrorClass | None] = Counts()
    for outcome in outcomes:
        errors[outcome.error] += 1
        ATTEMPT_SECONDS.observe(max(0.0, outcome.finished - outcome.started))
    for error, count in errors.items():
        labels = ("failed", error.value) if error else ("delivered", "")
        ATTEMPTS.labels(*labels).inc(count)


def exposition() -> bytes:
    """All processes' metrics in the Prometheus text format."""
    return generate_latest(_registry())


def oldest_tick_age_s() -> float:
    """Seconds since the slowest live dispatcher ticked; infinity before the first tick."""
    return _age_s("webhooks_ticked_monotonic_seconds")


def oldest_beat_age_s() -> float:
    """Seconds since any live worker last reached the database; infinity before it did."""
    return _age_s("webhooks_beaten_monotonic_seconds")


def _age_s(gauge: str) -> float:
    read = _registry().get_sample_value(gauge)
    return time.monotonic() - read if read else float("inf")


def _registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    MultiProcessCollector(registry, os.environ["PROMETHEUS_MULTIPROC_DIR"])  # type: ignore[no-untyped-call]
    return registry
