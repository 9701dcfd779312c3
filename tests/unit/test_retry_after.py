"""Retry-After against readings that are not our own."""

from __future__ import annotations

import datetime
from email.utils import parsedate_to_datetime

from hypothesis import example, given, settings
from hypothesis import strategies as st

from webhooks.sending import parse_retry_after

NOW = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC)
A_DAY_S = 86_400
# RFC 9110 section 5.6.7: the form to send and two that are obsolete. The two digits of the
# second one's year mean one at most 50 years ahead.
FORMS = ("%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y")
SEVENTY_YEARS = st.integers(631_152_000, 2_840_140_800)  # 1990 to 2060
NEARLY_NOW = st.integers(-A_DAY_S, 2 * A_DAY_S).map(lambda s: s + int(NOW.timestamp()))
TIMES = (SEVENTY_YEARS | NEARLY_NOW).map(
    lambda at: datetime.datetime.fromtimestamp(at, datetime.UTC)
)
SAME_EACH_TIME = settings(derandomize=True, database=None)


def within_a_day(then: datetime.datetime) -> float:
    seconds = (then.replace(tzinfo=datetime.UTC, microsecond=0) - NOW).total_seconds()
    return min(max(seconds, 0.0), A_DAY_S)


def read(text: str) -> float | None:
    return parse_retry_after(text, NOW.timestamp())


@SAME_EACH_TIME
@given(st.integers(0, 10**30))
def test_seconds_are_what_int_reads(seconds: int) -> None:
    """Up to a day; a number that no receiver can mean is a day too, or nothing."""
    found = read(str(seconds))

    assert found == min(seconds, A_DAY_S) or (found is None and seconds >= 10**10)


@SAME_EACH_TIME
@given(TIMES, st.sampled_from(FORMS))
def test_a_date_in_any_form_is_the_time_until_then(then: datetime.datetime, form: str) -> None:
    """What strftime writes is read back, as UTC, within a day."""
    assert read(then.strftime(form)) == within_a_day(then)


DATES = TIMES.map(lambda then: then.strftime(FORMS[0]))
ODD = st.sampled_from([*"0123456789 ,:-+.eExXGMTZ\t\0\uff11\u0660", "GMT", "-0000", "99", "Feb"])


@st.composite
def spoilt(draw: st.DrawFn) -> str:
    """A number or date with a few characters changed."""
    text = draw(DATES | st.integers(-9, 10**12).map(str))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(ODD | st.just("")) + text[at + draw(st.integers(0, 1)) :]
    return text


@SAME_EACH_TIME
@given(spoilt() | st.text())
@example("Fri, 31 Dec 9999 23:59:59 GMT")
@example("Mon, 30 Feb 2026 12:00:00 GMT")
@example("1e309")
@example("nan")
def test_what_is_read_is_what_the_standard_library_reads(text: str) -> None:
    """Nothing raises; a value is within a day, and what int or email.utils makes of the text."""
    found = read(text)

    if found is None:
        return
    assert 0 <= found <= A_DAY_S
    if text.isdigit():
        assert found == min(int(text), A_DAY_S)
    else:
        then = parsedate_to_datetime(text)
        assert then.tzinfo in (None, datetime.UTC)
        assert found == within_a_day(then)
