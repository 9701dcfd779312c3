"""Filters of subscriptions: SQL/JSON path predicates, checked by PostgreSQL when they are saved.

Source: https://www.postgresql.org/docs/current/functions-json.html (section on SQL/JSON paths)
"""

from __future__ import annotations

import psycopg

LONGEST = 1_000
EXAMPLE = "$.amount > 100"
# Not bounded in time by anything that a tenant writes: a pattern could hold up its emits.
FORBIDDEN = "like_regex"

# As a path that it is normalised to; then whether it is a predicate: of any value one is true,
# false or unknown, while a path that selects something raises.
NORMALISE = "SELECT %s::jsonpath::text"
PROBE = "SELECT jsonb_path_match(probe, %s::jsonpath) FROM unnest(%s::jsonb[]) AS probe"
PROBES = ["{}", "[]", "null", '{"a": 1}', "[1]"]
PASSES = "SELECT webhooks.passes(%s, %s)"


class FilterError(ValueError):
    """A filter cannot be used; the text says why, and what one looks like."""


def check(connection: psycopg.Connection, text: str) -> str:
    """The filter as it was given; raises FilterError.

    ``connection`` is in autocommit mode.
    """
    if len(text) > LONGEST or "\0" in text:
        raise FilterError(f"give at most {LONGEST} characters, such as {EXAMPLE}")
    try:
        row = connection.execute(NORMALISE, [text]).fetchone()
    except (psycopg.DataError, psycopg.ProgrammingError, psycopg.OperationalError) as error:
        why = (error.diag.message_primary or "").strip()
        raise FilterError(f"it is no SQL/JSON path such as {EXAMPLE}: {why}") from error
    if row and FORBIDDEN in row[0]:
        raise FilterError(f"{FORBIDDEN} is not available; compare, or use starts with")
    try:
        connection.execute(PROBE, [text, PROBES])
    except psycopg.DataError as error:
        raise FilterError(
            f"it selects values instead of saying yes or no; give a condition such as {EXAMPLE}, "
            "or exists(…) around it"
        ) from error
    return text


def passes(connection: psycopg.Connection, text: str, payload: bytes) -> bool | None:
    """Whether a payload passes, as emit sees it; None: that cannot be told (filter_error)."""
    row = connection.execute(PASSES, [text, payload]).fetchone()
    return row[0] if row else None
