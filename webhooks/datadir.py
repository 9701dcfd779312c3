"""The data directory of an installation: the embedded database, the keyring, a lock."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

# Where root keeps data: PostgreSQL runs as another account, which cannot enter /root.
ROOT_DIR = Path("/var/lib/webhooks")

DATABASE = "postgres"
KEYRING = "keyring"
LOCK = "up.lock"
OURS = {DATABASE, f"{DATABASE}.new", "socket", KEYRING, f"{KEYRING}.new", LOCK}


class DataDirError(RuntimeError):
    """The data directory cannot be used; the text says why and what to do."""


def default() -> Path:
    """The platform's place for an application's data."""
    if os.geteuid() == 0:
        return ROOT_DIR
    return Path(platformdirs.user_data_dir("webhooks", appauthor=False))


def prepare(data_dir: Path) -> None:
    """Make the data directory, or see that it is ours; DataDirError if it is not."""
    try:
        _check_ours(data_dir)
        # The account that runs PostgreSQL for root passes through, and lists nothing.
        data_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
    except OSError as error:
        raise DataDirError(
            f"{data_dir} cannot be used: {error.strerror}; give another --data-dir"
        ) from error


def _check_ours(data_dir: Path) -> None:
    if not data_dir.exists():
        return
    if not data_dir.is_dir():
        raise DataDirError(f"{data_dir} is not a directory; give another --data-dir")
    if (data_dir / DATABASE / "PG_VERSION").exists():
        return
    names = {entry.name for entry in data_dir.iterdir() if not entry.name.startswith("binaries-")}
    if names - OURS:
        raise DataDirError(
            f"{data_dir} holds other files ({min(names - OURS)} …) and no database of ours; "
            "give an empty --data-dir"
        )


@contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Hold the directory for this process and the children it forks.

    Raises DataDirError with the holder's pid when another process has it.
    """
    with open(data_dir / LOCK, "a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise DataDirError(_held(data_dir, lock.read().strip())) from error
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def _held(data_dir: Path, pid: str) -> str:
    if pid.isdecimal() and not _alive(int(pid)):
        return (
            f"the processes of a killed `webhooks up` (pid {pid}) on {data_dir} are still "
            "stopping; try again in a minute"
        )
    return f"`webhooks up` already runs on {data_dir} (pid {pid or 'unknown'}); stop it first"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def read_keyring(data_dir: Path) -> str | None:
    """The keyring kept in the directory, or None; DataDirError when it cannot be read."""
    try:
        return (data_dir / KEYRING).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataDirError(f"{data_dir / KEYRING} cannot be read: {error.strerror}") from error


def write_keyring(data_dir: Path, keyring: str) -> None:
    """Keep a new keyring, readable by us alone; it is there whole or not at all."""
    unfinished = data_dir / f"{KEYRING}.new"
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{keyring}\n")
        file.flush()
        os.fsync(descriptor)
    unfinished.rename(data_dir / KEYRING)
