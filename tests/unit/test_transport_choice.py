"""WEBHOOKS_TRANSPORT: which transport a worker uses, also where there is no libcurl."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from tests.rawserver import RawServer, replies, reply
from webhooks.settings import Settings, SettingsError
from webhooks.transports import choice
from webhooks.transports.curl import CurlTransport
from webhooks.worker import _check_transport

# A process in which pycurl cannot be imported sends one request, as a worker would.
WITHOUT_PYCURL = """
import ipaddress, logging, sys

sys.modules["pycurl"] = None
from webhooks import worker  # what gunicorn loads
from webhooks.settings import Settings
from webhooks.transports import choice
from webhooks.transports.base import Request

logging.basicConfig(level="INFO", stream=sys.stdout, format="%(message)s")
loopback = (ipaddress.ip_network("127.0.0.1/32"),)
transport = choice.make(Settings(allow_http=True, allow_cidrs=loopback))
transport.start(Request("key", sys.argv[1], (("X-Sent", "yes"),), b"{}", 5.0, 5.0))
responses = []
while not responses:
    responses = transport.wait(5)
transport.close()
print(responses[0].status_code, responses[0].body)
"""


def test_auto_takes_libcurl_where_it_is_installed(caplog: pytest.LogCaptureFixture) -> None:
    """auto means curl with pycurl there, and the log says so."""
    caplog.set_level(logging.INFO)
    transport = choice.make(Settings())
    transport.close()

    assert isinstance(transport, CurlTransport)
    assert caplog.messages == ["transport: curl (pycurl is installed)"]


def test_a_transport_can_be_named(caplog: pytest.LogCaptureFixture) -> None:
    """requests is used when it is wanted, whatever is installed."""
    caplog.set_level(logging.INFO)
    transport = choice.make(Settings(transport="requests"))
    transport.close()

    assert not isinstance(transport, CurlTransport)
    assert caplog.messages == ["transport: requests (as set)"]


def test_without_pycurl_the_package_sends_by_requests() -> None:
    """A plain install, without the extra, delivers over requests and says why."""
    with RawServer(replies(reply(200, b"ok"))) as server:
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_PYCURL, server.url("/hook")],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "transport: requests (pycurl is not installed)",
        "200 b'ok'",
    ]
    assert server.requests[0].header("x-sent") == "yes"


def test_curl_by_name_without_pycurl_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The master ends with what to install, instead of forking workers that cannot begin."""
    monkeypatch.setitem(sys.modules, "pycurl", None)
    with pytest.raises(SettingsError, match=r"pip install 'webhooks-platform\[curl\]'"):
        choice.choose("curl")
    assert choice.choose("auto") == "requests"

    monkeypatch.setenv("WEBHOOKS_TRANSPORT", "curl")
    with pytest.raises(SystemExit, match="WEBHOOKS_TRANSPORT='curl'"):
        _check_transport()


def test_a_worker_may_open_as_many_files_as_the_system_allows() -> None:
    """The usual soft limit of 1,024 would refuse connections under a full load."""
    script = (
        "import resource; from webhooks.worker import _raise_file_limit as up\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))\n"
        "up(); print(resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.parametrize("value", ["libcurl", "Curl", "", "requests "])
def test_another_value_is_refused(value: str) -> None:
    """The setting names its three values."""
    with pytest.raises(SettingsError, match=r"WEBHOOKS_TRANSPORT=.*: give auto, curl or requests"):
        Settings.from_env({"WEBHOOKS_TRANSPORT": value})
