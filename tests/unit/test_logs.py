"""Log records: one line each, whatever is in them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from webhooks import logs


@pytest.fixture(autouse=True)
def _root() -> Iterator[None]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


def test_a_record_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Line ends and terminal escapes are written out, so that nothing forges a line."""
    logs.setup("info")

    logging.getLogger("webhooks.x").warning("user %s", "a\r\nERROR \x1b[31m\u2028 forged é")

    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("warning webhooks.x: user a\\r\\nERROR \\x1b[31m\\u2028 forged é")


def test_the_level_is_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    """What lies below it is not written, nor are the libraries' steps."""
    logs.setup("info")

    logging.getLogger("webhooks.x").debug("quiet")
    logging.getLogger("apscheduler.executors").info("quiet")
    logging.getLogger("webhooks.x").info("loud")

    assert [line.split()[-1] for line in capsys.readouterr().err.splitlines()] == ["loud"]


def test_an_exception_is_told_with_its_frames_and_cause(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Innermost frame first, then what led to it, all on the record's line."""
    logs.setup("info")

    def fails() -> None:
        raise KeyError("inner")

    try:
        try:
            fails()
        except KeyError as error:
            raise ValueError("outer\nsecond") from error
    except ValueError:
        logging.getLogger("webhooks.x").exception("it broke")

    (line,) = capsys.readouterr().err.splitlines()
    assert "it broke: ValueError: outer\\nsecond [test_logs.py:" in line
    assert "; after KeyError: 'inner' [test_logs.py:" in line
    assert "fails < test_logs.py:" in line
