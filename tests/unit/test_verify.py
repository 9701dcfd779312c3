"""`webhooks verify`: a pasted request, and what is said about it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from webhooks import cli

# From tests/data/vectors.json: published by others, made by none of our code.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PUBLIC = "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
BODY = b'{"test": 2432232314}'
SENT_AT = 1614265330
HEADERS = (
    b"POST /hook HTTP/1.1\r\n"
    b"Host: hooks.example\r\n"
    b"Webhook-Id: msg_p5jXN8AQM9LWM0D4loKWxJek\r\n"
    b"webhook-timestamp:1614265330\r\n"
    b"webhook-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= \r\n"
)
REQUEST = HEADERS + b"\r\n" + BODY
NOW = ("--now", str(SENT_AT))


def run(*arguments: str, given: bytes = REQUEST, secret: str | None = SECRET) -> Result:
    return CliRunner().invoke(
        cli.main, ["verify", *arguments], input=given, env={"SIGNING_SECRET": secret}
    )


def steps(result: Result) -> dict[str, str]:
    """Each step that is reported, with what is wrong."""
    lines = [
        line.split(None, 1) for line in result.stdout.splitlines() if line[:4] in ("ok  ", "fail")
    ]
    return {rest.partition(": ")[0]: rest.partition(": ")[2] for _, rest in lines}


@pytest.mark.parametrize("given", [REQUEST, REQUEST.replace(b"\r\n", b"\n"), REQUEST[21:]])
def test_a_pasted_request_verifies(given: bytes) -> None:
    """With its request line or without, with either line end; exit code 0."""
    result = run(*NOW, given=given)

    assert result.exit_code == 0, result.output
    assert steps(result) == {"secret": "", "headers": "", "timestamp": "", "signature": ""}
    assert result.stdout.endswith("Verified: it comes from a holder of this secret.\n")


def test_a_body_with_empty_lines_stays_whole() -> None:
    """Only the first empty line ends the headers."""
    body = b'{\r\n\r\n  "a": 1\n\n}\n'
    now = int(time.time())
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    digest = hmac.new(key, b"evt_1.%d.%b" % (now, body), hashlib.sha256).digest()
    head = f"webhook-id: evt_1\nwebhook-timestamp: {now}\nwebhook-signature: v1,"

    assert run(given=head.encode() + base64.b64encode(digest) + b"\n\n" + body).exit_code == 0


def test_headers_body_and_secret_come_from_files_or_arguments(tmp_path: Path) -> None:
    """Each way leads to the same verdict."""
    (tmp_path / "request").write_bytes(REQUEST)
    (tmp_path / "headers").write_bytes(HEADERS)
    (tmp_path / "body").write_bytes(BODY)
    (tmp_path / "secret").write_text(SECRET + "\n")
    secret = ("--secret-file", str(tmp_path / "secret"))
    lines = [("-H", line.decode()) for line in HEADERS.split(b"\r\n")[1:] if line]
    headers = [part for pair in lines for part in pair]

    for arguments, given in (
        ([str(tmp_path / "request")], b""),
        ([str(tmp_path / "headers"), "--body", str(tmp_path / "body")], b""),
        (["--body", str(tmp_path / "body")], HEADERS),
        ([*headers, "--body", str(tmp_path / "body")], b""),
        ([*headers, "-"], BODY),
        (headers, BODY),
    ):
        result = run(*arguments, *secret, *NOW, given=given, secret=None)
        assert result.exit_code == 0, (arguments, result.output)


def test_svix_names_and_public_keys_are_known() -> None:
    """A request under Svix's names, signed by a key pair."""
    given = (
        b"svix-id: msg_rfc8032\nsvix-timestamp: 1700000007\nsvix-signature: "
        b"v1a,MI63/kO3TBIkqauEwN/ceG/RF4wAUwdATT307A9zoPP7VrE2sE/IWuZv4jJH8YgqVjMCadrmqmFX7Ioxxy69"
        b'DA==\n\n{"a":1}'
    )

    assert run("--now", "1700000007", given=given, secret=PUBLIC).exit_code == 0


@pytest.mark.parametrize(
    ("given", "secret", "step", "said"),
    [
        (REQUEST.replace(b": 24", b":24"), SECRET, "signature", "parsed and written again"),
        (REQUEST + b"\n", SECRET, "signature", "line ends were added"),
        (REQUEST.replace(b"msg_p5", b"msg_p6"), SECRET, "signature", "no signature matches"),
        (REQUEST, SECRET[:-1] + "x", "signature", "no signature matches"),
        (REQUEST, SECRET[:-1], "secret", "padding"),
        (REQUEST, "whsec_" + "_" * 32, "secret", "URL-safe"),
        (REQUEST, PUBLIC, "signature", "verify with the whsec_"),
        (REQUEST.replace(b"Webhook-Id", b"X-Id"), SECRET, "headers", "webhook-id is missing"),
        (REQUEST.replace(b"p:1614265330", b"p:soon"), SECRET, "timestamp", "not whole Unix"),
    ],
)
def test_the_step_that_fails_is_said(given: bytes, secret: str, step: str, said: str) -> None:
    """Exit code 1, the step, and what is wrong with it; never the secret."""
    result = run(*NOW, given=given, secret=secret)

    wrong = {name: reason for name, reason in steps(result).items() if reason}
    assert result.exit_code == 1
    assert list(wrong) == [step]
    assert said in wrong[step]
    assert result.stdout.endswith("Not verified.\n")
    assert secret[6:] not in result.output


def test_an_old_request_is_told_from_a_forged_one() -> None:
    """The time is wrong, the signature is right, and the remedy is named."""
    result = run()

    assert result.exit_code == 1
    assert steps(result)["signature"] == ""
    assert " s old; 300 s are allowed" in steps(result)["timestamp"]
    assert "--now" in result.stdout
    assert run("--tolerance", str(10**10)).exit_code == 0


@pytest.mark.parametrize(
    ("given", "secret", "said"),
    [
        (HEADERS, SECRET, "no body"),
        (b"", SECRET, "no body"),
        (HEADERS + b"no header\r\n\r\n{}", SECRET, "header 5"),
        (HEADERS + b"webhook-id: other\r\n\r\n{}", SECRET, "webhook-id is there twice"),
        (REQUEST, None, "SIGNING_SECRET"),
    ],
)
def test_a_request_that_cannot_be_read_is_one_line(
    given: bytes, secret: str | None, said: str
) -> None:
    """Exit code 2, and what to give."""
    result = run(*NOW, given=given, secret=secret)

    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert said in line


def test_a_file_that_is_missing_is_named() -> None:
    """As everywhere: one line, exit code 2."""
    result = run("--body", "/nonesuch/body", given=HEADERS)

    assert result.exit_code == 2
    assert "/nonesuch/body: No such file" in result.stderr


def test_the_terminal_does_not_show_the_secret() -> None:
    """It is asked for, typed without an echo; then the request is pasted."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "webhooks", "verify", *NOW],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = read_until(ours, b"Secret or public key: ")
        os.write(ours, SECRET.encode() + b"\n")
        shown += read_until(ours, b"Ctrl-D.")
        os.write(ours, REQUEST.replace(b"\r\n", b"\n") + b"\n\x04")
        shown += read_until(ours, b"holder of this secret.")
        os.close(ours)

    assert process.returncode == 0
    assert SECRET[6:].encode() not in shown


def read_until(terminal: int, wanted: bytes) -> bytes:
    shown = b""
    while wanted not in shown:
        shown += os.read(terminal, 4096)
    return shown
