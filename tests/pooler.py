"""PgBouncer in front of a database, in transaction mode."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.stack import eventually, free_port
from tests.support import require

PGBOUNCER = Path("/usr/sbin/pgbouncer")


@contextmanager
def pooled(url: str, connections: int) -> Iterator[str]:
    """The same database through a pooler that has so many connections to it."""
    require(PGBOUNCER.exists(), "PgBouncer", "apt-get install pgbouncer")
    server = {key: str(value) for key, value in conninfo_to_dict(url).items()}
    name = server.pop("dbname")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="webhooks-pooler-") as folder:
        config = Path(folder) / "pgbouncer.ini"
        config.write_text(
            f"[databases]\n* = {make_conninfo(**server)}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = any\npool_mode = transaction\ndefault_pool_size = {connections}\n"
        )
        # It refuses to run as root, and reads its configuration before it changes accounts.
        account = ["-u", "postgres"] if os.geteuid() == 0 else []
        command = [str(PGBOUNCER), "-q", *account, str(config)]
        pooler = subprocess.Popen(command, stderr=subprocess.PIPE)
        through = f"postgresql://{server['user']}@127.0.0.1:{port}/{name}"
        try:
            eventually(lambda: _answers(through))
            yield through
        finally:
            pooler.terminate()
            pooler.communicate()


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True
