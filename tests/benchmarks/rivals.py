"""What the engine is measured against: the bare libcurl loop, and the naive worker."""

from __future__ import annotations

import itertools
import sys
import threading
import time

import psycopg
import pycurl
import requests

IN_FLIGHT = 256
NAIVE_THREADS = 16

HEADERS = [
    "Content-Type: application/json",
    "User-Agent: Webhooks/bench",
    "webhook-timestamp: 1700000000",
    "webhook-signature: v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    "webhook-event-type: bench.event",
    "webhook-attempt: 1",
    "Expect:",
]

NAIVE_TABLE = """
CREATE TABLE naive (id bigserial PRIMARY KEY, url text, body bytea, status text DEFAULT 'pending');
CREATE INDEX ON naive (id) WHERE status = 'pending';
"""
NAIVE_CLAIM = """
SELECT id, url, body FROM naive WHERE status = 'pending'
ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
"""


def bare(url: str, body: bytes, seconds: float) -> float:
    """Requests per second of one process with libcurl's multi interface and no database.

    Each request is set up as any sender must (URL, its own headers, body) and its answer
    taken (status, headers, body); handles and connections are reused.
    """
    multi = pycurl.CurlMulti()
    numbers = itertools.count()
    for _ in range(IN_FLIGHT):
        multi.add_handle(_prepare(pycurl.Curl(), url, body, next(numbers)))
    done = 0
    warm_until = time.monotonic() + min(1.0, seconds / 4)
    began = 0.0
    while True:
        multi.perform()
        _, ok, failed = multi.info_read(IN_FLIGHT)
        assert not failed, failed[0]
        for handle in ok:
            assert handle.getinfo(pycurl.RESPONSE_CODE) == 200
            multi.remove_handle(handle)
            multi.add_handle(_prepare(handle, url, body, next(numbers)))
        done += len(ok)
        now = time.monotonic()
        if not began and now >= warm_until:
            began, done = now, 0
        if began and now >= began + seconds:
            return done / (now - began)
        if not ok:
            multi.select(0.1)


def _prepare(handle: pycurl.Curl, url: str, body: bytes, number: int) -> pycurl.Curl:
    answer: list[bytes] = []
    handle.setopt(pycurl.URL, url)
    handle.setopt(pycurl.HTTPHEADER, [*HEADERS, f"webhook-id: evt_{number:026}"])
    handle.setopt(pycurl.POSTFIELDS, body)
    handle.setopt(pycurl.WRITEFUNCTION, answer.append)
    handle.setopt(pycurl.HEADERFUNCTION, answer.append)
    handle.setopt(pycurl.NOSIGNAL, 1)
    handle.setopt(pycurl.TIMEOUT_MS, 20_000)
    return handle


def naive(database_url: str, seconds: float) -> float:
    """Deliveries per second of the worker of many articles: a thread, a row, a requests.post."""
    stop = threading.Event()
    counts = [0] * NAIVE_THREADS

    def work(number: int) -> None:
        with psycopg.connect(database_url) as connection:
            while not stop.is_set():
                with connection.transaction():
                    row = connection.execute(NAIVE_CLAIM).fetchone()
                    if row is None:
                        return
                    answer = requests.post(
                        row[1], data=row[2], timeout=20,
                        headers={"Content-Type": "application/json"},
                    )  # fmt: skip
                    status = "delivered" if answer.ok else "failed"
                    connection.execute(
                        "UPDATE naive SET status = %s WHERE id = %s", [status, row[0]]
                    )
                    counts[number] += 1

    threads = [threading.Thread(target=work, args=(n,)) for n in range(NAIVE_THREADS)]
    for thread in threads:
        thread.start()
    time.sleep(min(1.0, seconds / 4))
    before, began = sum(counts), time.monotonic()
    time.sleep(seconds)
    rate = (sum(counts) - before) / (time.monotonic() - began)
    stop.set()
    for thread in threads:
        thread.join()
    return rate


if __name__ == "__main__":
    which, target, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    rate = (
        bare(target, b"x" * int(sys.argv[4]), seconds)
        if which == "bare"
        else naive(target, seconds)
    )
    sys.stdout.write(f"{rate}\n")
