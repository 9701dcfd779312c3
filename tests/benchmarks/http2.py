"""HTTP/2 against HTTP/1.1, both over TLS: libcurl to nginx, one endpoint, many in flight.

    python -m tests.benchmarks.http2 --seconds 3

One process sends, as the bare loop of ``deliver`` does; "cpu" is its own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pycurl
import trustme

from tests.benchmarks.rivals import HEADERS
from tests.stack import eventually, free_port
from tests.support import require

BODY = b"x" * 1024
NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    keepalive_requests 100000000;
    keepalive_timeout 300s;
    http2_max_concurrent_streams 512;
    client_body_temp_path {folder}/body;
    ssl_certificate {folder}/cert.pem;
    ssl_certificate_key {folder}/key.pem;
    server {{
        listen 127.0.0.1:{port} ssl http2 backlog=4096;
        location / {{ return 200 "ok"; }}
    }}
}}
"""


@contextmanager
def receiver() -> Iterator[tuple[str, str]]:
    """Answers 200 over TLS, in either version: its URL and its authority's file."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    require(nginx, "nginx", "apt-get install nginx-light")
    port = free_port()
    authority = trustme.CA()
    with tempfile.TemporaryDirectory(prefix="webhooks-bench-") as name:
        folder = Path(name)
        certificate = authority.issue_cert("127.0.0.1")
        certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
        certificate.private_key_pem.write_to_path(folder / "key.pem")
        authority.cert_pem.write_to_path(folder / "ca.pem")
        config = folder / "nginx.conf"
        config.write_text(NGINX.format(folder=folder, port=port))
        process = subprocess.Popen([str(nginx), "-c", str(config), "-p", name])
        try:
            eventually(lambda: (folder / "nginx.pid").exists(), 10, "the receiver runs")
            yield f"https://127.0.0.1:{port}/hook", str(folder / "ca.pem")
        finally:
            process.terminate()
            process.wait()


def measure(url: str, ca_file: str, version: int, in_flight: int, seconds: float) -> dict[str, Any]:
    """Requests per second, and the sender's CPU for each."""
    multi = pycurl.CurlMulti()
    multi.setopt(pycurl.M_PIPELINING, pycurl.PIPE_MULTIPLEX)
    multi.setopt(pycurl.M_MAX_CONCURRENT_STREAMS, 512)
    numbers = itertools.count()
    for _ in range(in_flight):
        multi.add_handle(prepare(pycurl.Curl(), url, ca_file, version, next(numbers)))
    done, began, cpu = 0, 0.0, 0.0
    warm_until = time.monotonic() + 0.5
    connections = 0
    while not began or time.monotonic() < began + seconds:
        multi.perform()
        _, ok, failed = multi.info_read(in_flight)
        assert not failed, failed[0]
        for handle in ok:
            assert handle.getinfo(pycurl.RESPONSE_CODE) == 200
            connections += handle.getinfo(pycurl.NUM_CONNECTS)
            multi.remove_handle(handle)
            multi.add_handle(prepare(handle, url, ca_file, version, next(numbers)))
        done += len(ok)
        if not began and time.monotonic() >= warm_until:
            began, done, cpu = time.monotonic(), 0, cpu_s()
        if not ok:
            multi.select(0.1)
    spent, took = cpu_s() - cpu, time.monotonic() - began
    return {"per_s": done / took, "cpu_us": spent / done * 1e6, "connections": connections}


def prepare(handle: pycurl.Curl, url: str, ca_file: str, version: int, number: int) -> pycurl.Curl:
    answer: list[bytes] = []
    handle.setopt(pycurl.URL, url)
    handle.setopt(pycurl.HTTP_VERSION, version)
    handle.setopt(pycurl.PIPEWAIT, 1)
    handle.setopt(pycurl.CAINFO, ca_file)
    handle.setopt(pycurl.HTTPHEADER, [*HEADERS, f"webhook-id: evt_{number:026}"])
    handle.setopt(pycurl.POSTFIELDS, BODY)
    handle.setopt(pycurl.WRITEFUNCTION, answer.append)
    handle.setopt(pycurl.HEADERFUNCTION, answer.append)
    handle.setopt(pycurl.NOSIGNAL, 1)
    handle.setopt(pycurl.TIMEOUT_MS, 20_000)
    return handle


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    versions = {
        "HTTP/1.1": pycurl.CURL_HTTP_VERSION_1_1,
        "HTTP/2": pycurl.CURL_HTTP_VERSION_2TLS,
    }
    rows = []
    with receiver() as (url, ca_file):
        for in_flight in (1, 10, 50, 256):
            for name, version in versions.items():
                found = measure(url, ca_file, version, in_flight, chosen.seconds)
                rows.append({"version": name, "in_flight": in_flight, **found})
    if chosen.json:
        sys.stdout.write(json.dumps(rows) + "\n")
        return
    for row in rows:
        sys.stdout.write(
            "{version:9} {in_flight:4} in flight {per_s:8.0f} requests/s "
            "{cpu_us:6.1f} µs each, {connections} connections\n".format(**row)
        )


if __name__ == "__main__":
    main()
