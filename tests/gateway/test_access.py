"""Who gets through which door: attempts cannot reach each other, nothing malformed goes in."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from gateway_world import TOKEN, Place, RealClock, client, lines, sha, until
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import unix_connect

from harness.core.result import Err
from harness.failures import Failure
from harness.gateway import wire
from harness.gateway.client import BusClient
from harness.gateway.server import DISK_THREADS
from harness.gateway.settings import GatewayError, ModelSettings

OTHER = "token-of-another-attempt-987654"


def connect(folder: Path, token: str = TOKEN, incarnation: int = 1) -> Any:
    return unix_connect(
        str(folder / "gateway.sock"),
        "ws://gateway/bus",
        additional_headers={wire.TOKEN_HEADER: token, wire.INCARNATION_HEADER: str(incarnation)},
        compression=None,
        max_size=4 << 20,
        close_timeout=1,
    )


def greet(line: Any, v: int = wire.PROTOCOL) -> dict[str, Any]:
    line.send(json.dumps({"type": "hello", "v": v}))
    return json.loads(line.recv(timeout=10))


def closed(line: Any) -> ConnectionClosed:
    with pytest.raises(ConnectionClosed) as e:
        while True:
            line.recv(timeout=10)
    return e.value


def test_one_attempts_token_opens_no_other_attempts_door(place: Place) -> None:
    gateway = place.gateway(model=ModelSettings("http://127.0.0.1:9"))
    a, b = gateway.open("12.1", TOKEN, 1), gateway.open("13.1", OTHER, 1)
    for folder, token, incarnation, status in [
        (a, OTHER, 1, 401),
        (b, TOKEN, 1, 401),
        (a, "", 1, 401),
        (a, TOKEN, 2, 409),
        (a, TOKEN, 0, 409),
    ]:
        c = client(folder, token, incarnation)
        for method, path in [
            ("POST", "/git/bundle"),
            ("GET", "/git/mirror.git/info/refs?service=git-upload-pack"),
            ("POST", "/model/v1/messages"),
        ]:
            assert c.request(method, path, content=b"x").status_code == status, (path, token)
        with pytest.raises(InvalidStatus) as e, connect(folder, token, incarnation):
            pass
        assert e.value.response.status_code == status


def test_what_is_sent_can_name_no_other_attempt(place: Place) -> None:
    gateway = place.gateway()
    a, b = gateway.open("12.1", TOKEN, 1), gateway.open("13.1", OTHER, 1)
    with connect(a) as line:
        greet(line)
        line.send(
            json.dumps(
                {"type": "ask", "key": "k", "kind": "ask", "args": {"attempt": "13.1"}, "attempt": "13.1"}
            )
        )
        line.send(json.dumps({"type": "beat", "n": 1, "state": "CODE", "attempt": "13.1", "incarnation": 9}))
        beat = until(lambda: gateway.beat("12.1"))
    assert beat.incarnation == 1
    assert gateway.asked("13.1") == () and gateway.beat("13.1") is None
    assert client(a).post("/git/bundle?attempt=13.1", content=b"x").status_code == 200
    assert gateway.bundle("13.1", sha(b"x")) is None and gateway.bundle("12.1", sha(b"x")) is not None
    gateway.answer("13.1", "k", {"ok": True, "secret": "of b"})
    bus = BusClient(a / "gateway.sock", TOKEN, "13.1", 1, RealClock())
    try:
        until(lambda: bus.state == "up")
        assert "of b" not in repr(bus.request("k", "ask", {}))
    finally:
        bus.close()
    assert b != a


def test_the_socket_can_be_reached_by_another_uid_and_its_folder_by_nobody_else(place: Place) -> None:
    folder = place.gateway().open("12.1", TOKEN, 1)
    mode = stat.S_IMODE((folder / "gateway.sock").stat().st_mode)
    assert mode == 0o666 and stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert len(os.fsencode(folder / "gateway.sock")) < 100


def test_a_runtime_folder_that_is_too_deep_is_named(place: Place) -> None:
    place.runtime = place.runtime / ("x" * 90)
    gateway = place.gateway()
    with pytest.raises(GatewayError, match="choose a shorter runtime folder"):
        gateway.open("12.1", TOKEN, 1)
    assert gateway.asked("12.1") == ()


@pytest.mark.parametrize("attempt", ["", "../x", "a/b", ".", "x" * 65, "a\n"])
def test_an_attempts_name_must_be_a_folders(place: Place, attempt: str) -> None:
    with pytest.raises(GatewayError, match="cannot be a folder's name"):
        place.gateway().open(attempt, TOKEN, 1)


def test_a_runtime_folder_of_somebody_else_is_not_used(place: Place) -> None:
    place.runtime.mkdir(mode=0o777, parents=True)
    place.runtime.chmod(0o777)
    with pytest.raises(GatewayError, match="only this user can write to"):
        place.gateway().open("12.1", TOKEN, 1)


def test_what_is_shut_leaves_nothing_in_the_runtime_folder(place: Place) -> None:
    gateway = place.gateway()
    folder = gateway.open("12.1", TOKEN, 1)
    (folder / "token").write_text(TOKEN)
    gateway.shut("12.1")
    assert list(place.runtime.iterdir()) == []
    assert client(gateway.open("12.1", TOKEN, 1)).post("/git/bundle", content=b"x").status_code == 200


def test_what_waits_for_the_disk_has_threads_of_a_known_number(place: Place) -> None:
    """The default grows with the machine's cores: nobody could say what is too many."""
    gateway = place.gateway()
    folders = [gateway.open(f"{n}.1", TOKEN, 1) for n in range(3 * DISK_THREADS)]

    def upload(folder: Path) -> None:
        for n in range(5):
            assert client(folder).post("/git/bundle", content=b"%d" % n * 1000).status_code == 200

    before = set(threading.enumerate())
    uploads = [threading.Thread(target=upload, args=(f,), name="upload") for f in folders]
    for thread in uploads:
        thread.start()
    for thread in uploads:
        thread.join(60)
    names = [t.name for t in set(threading.enumerate()) - before]
    assert 0 < len(names) <= DISK_THREADS
    assert all(name.startswith("gateway-disk") for name in names), names
    for folder in folders:
        assert client(folder).post("/git/bundle", content=b"0").status_code == 200


def test_the_oldest_bundles_go_first(place: Place) -> None:
    gateway = place.gateway()
    c = client(gateway.open("12.1", TOKEN, 1))
    inbox = place.data / "attempts" / "12.1" / "inbox"
    for i in range(105):
        assert c.post("/git/bundle", content=b"%d" % i).status_code == 200
    assert len(list(inbox.iterdir())) == 100
    assert gateway.bundle("12.1", sha(b"104")) and not gateway.bundle("12.1", sha(b"0"))


def test_a_socket_that_the_worker_removed_is_made_again(place: Place) -> None:
    gateway = place.gateway()
    folder = gateway.open("12.1", TOKEN, 1)
    (folder / "gateway.sock").unlink()
    assert gateway.open("12.1", TOKEN, 1) == folder
    assert client(folder).post("/git/bundle", content=b"x").status_code == 200


@pytest.mark.parametrize(
    ("v", "welcome"),
    [
        (wire.PROTOCOL, True),
        (wire.PROTOCOL - 1, True),
        (wire.PROTOCOL + 1, False),
        (wire.PROTOCOL - 2, False),
    ],
)
def test_a_protocol_and_the_one_before_it_are_spoken(place: Place, v: int, welcome: bool) -> None:
    folder = place.gateway().open("12.1", TOKEN, 1)
    with connect(folder) as line:
        first = greet(line, v)
        assert (first["type"], first["v"]) == (("welcome", v) if welcome else ("incompatible", wire.PROTOCOL))
        if not welcome:
            assert closed(line).rcvd.code == wire.CLOSE_INCOMPATIBLE


def test_a_newer_worker_speaks_the_older_protocol(place: Place) -> None:
    folder = place.gateway().open("12.1", TOKEN, 1)
    bus = BusClient(folder / "gateway.sock", TOKEN, "12.1", 1, RealClock(), protocol=wire.PROTOCOL + 1)
    try:
        until(lambda: bus.state == "up")
    finally:
        bus.close()


def test_a_much_newer_worker_says_clearly_that_it_cannot(place: Place) -> None:
    folder = place.gateway().open("12.1", TOKEN, 1)
    bus = BusClient(folder / "gateway.sock", TOKEN, "12.1", 1, RealClock(), protocol=wire.PROTOCOL + 2)
    try:
        until(lambda: bus.state == "incompatible")
        assert f"protocol {wire.PROTOCOL + 2}" in bus.problem
        refused = bus.request("k", "ask", {})
        assert isinstance(refused, Err) and refused.failure == Failure.INFRA_GATEWAY
    finally:
        bus.close()


MALFORMED: list[Any] = [
    "no json",
    "[]",
    json.dumps({"type": "unheard-of"}),
    json.dumps({"type": "ask", "key": "", "kind": "ask", "args": {}}),
    json.dumps({"type": "ask", "key": "k", "kind": "no such kind!", "args": {}}),
    json.dumps({"type": "ask", "key": "k" * 201, "kind": "ask", "args": {}}),
    json.dumps({"type": "beat", "n": -1, "state": "CODE"}),
    json.dumps({"type": "beat", "n": 1, "state": "x" * 65}),
    json.dumps({"type": "ask", "key": "k", "kind": "ask", "args": {"x": "y" * (wire.TEXT_LIMIT_BYTES + 1)}}),
    "[" * 50_000,
]


@pytest.mark.parametrize("said", MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_or_oversize_message_ends_the_line_and_nothing_else(place: Place, said: str) -> None:
    gateway = place.gateway()
    folder = gateway.open("12.1", TOKEN, 1)
    with connect(folder) as line:
        greet(line)
        line.send(said)
        assert closed(line).rcvd.code == wire.CLOSE_MALFORMED
    assert gateway.asked("12.1") == () and gateway.beat("12.1") is None
    with connect(folder) as line:
        assert greet(line)["type"] == "welcome"


def test_a_frame_beyond_every_limit_is_not_even_read(place: Place) -> None:
    gateway = place.gateway()
    folder = gateway.open("12.1", TOKEN, 1)
    with connect(folder) as line:
        greet(line)
        with pytest.raises(ConnectionClosed) as e:
            line.send(b"x" * (wire.FRAME_LIMIT_BYTES + 1))
            line.recv(timeout=10)
    # The reason is lost where the line is cut while we are still sending.
    assert e.value.rcvd is None or e.value.rcvd.code == 1009
    assert gateway.asked("12.1") == ()
    with connect(folder) as line:
        assert greet(line)["type"] == "welcome"


def test_what_is_said_before_hello_ends_the_line(place: Place) -> None:
    folder = place.gateway().open("12.1", TOKEN, 1)
    with connect(folder) as line:
        line.send(lines(1)[0])
        assert closed(line).rcvd.code == wire.CLOSE_MALFORMED


def test_the_client_refuses_what_is_too_large_itself(place: Place, tmp_path: Path) -> None:
    folder = place.gateway().open("12.1", TOKEN, 1)
    bus = BusClient(folder / "gateway.sock", TOKEN, "12.1", 1, RealClock())
    try:
        refused = bus.request("k", "ask", {"x": "y" * wire.TEXT_LIMIT_BYTES})
        assert isinstance(refused, Err) and refused.failure == Failure.POLICY_VIOLATION
        bad = bus.request("k2", "no such kind!", {})
        assert isinstance(bad, Err) and bad.failure == Failure.INTERNAL_ERROR
        bus.record(b"not a record\n")
        assert "no record" in bus.problem
        until(lambda: bus.state == "up")
        big = tmp_path / "big.bundle"
        with big.open("wb") as f:
            f.truncate((50 << 20) + 1)
        sent = bus.upload(big)
        assert (
            isinstance(sent, Err) and sent.failure == Failure.POLICY_VIOLATION and "52428800" in sent.detail
        )
        missing = bus.upload(tmp_path / "missing")
        assert isinstance(missing, Err) and missing.failure == Failure.INFRA_GATEWAY
    finally:
        bus.close()


def test_requests_of_one_attempt_are_bounded(place: Place) -> None:
    gateway = place.gateway()
    with connect(gateway.open("12.1", TOKEN, 1)) as line:
        greet(line)
        for i in range(65):
            line.send(json.dumps({"type": "ask", "key": f"k{i}", "kind": "ask", "args": {}}))
        reply = json.loads(line.recv(timeout=10))
    assert reply["key"] == "k64" and reply["reply"]["failure"] == "policy_violation"
    assert len(gateway.asked("12.1")) == 64


def test_lines_of_one_attempt_are_bounded(place: Place) -> None:
    gateway = place.gateway()
    folder = gateway.open("12.1", TOKEN, 1)
    opened = [connect(folder) for _ in range(4)]
    try:
        for line in opened:
            greet(line.__enter__())
        with pytest.raises(InvalidStatus), connect(folder):
            pass
    finally:
        for line in opened:
            line.__exit__(None, None, None)


def test_connections_of_one_attempt_are_bounded(place: Place) -> None:
    gateway = place.gateway()
    a, b = gateway.open("12.1", TOKEN, 1), gateway.open("13.1", OTHER, 1)
    held = []
    try:
        for _ in range(100):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(5)
            s.connect(str(a / "gateway.sock"))
            held.append(s)
        assert held[-1].recv(1) == b""
        assert client(b, OTHER).post("/git/bundle", content=b"x").status_code == 200
    finally:
        for s in held:
            s.close()
    until(lambda: _works(a))


def _works(folder: Path) -> bool:
    import httpx

    try:
        return client(folder).post("/git/bundle", content=b"x").status_code == 200
    except httpx.HTTPError:
        return False


def test_a_flood_of_beats_slows_its_own_sender_only(place: Place) -> None:
    gateway = place.gateway()
    a, b = gateway.open("12.1", TOKEN, 1), gateway.open("13.1", OTHER, 1)
    done = threading.Event()

    def flood() -> None:
        with contextlib.suppress(ConnectionClosed), connect(a) as line:
            greet(line)
            beat = json.dumps({"type": "beat", "n": 1, "state": "CODE"})
            for _ in range(4000):
                if done.is_set():
                    return
                line.send(beat)

    sender = threading.Thread(target=flood)
    sender.start()
    try:
        with connect(b, OTHER) as line:
            greet(line)
            for n in range(1, 20):
                line.send(json.dumps({"type": "beat", "n": n, "state": "CODE"}))
                assert json.loads(line.recv(timeout=5))["n"] == n
    finally:
        done.set()
        sender.join(20)


# ---------------------------------------------------------------- git


def git(*args: str, cwd: Path | None = None) -> str:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    env |= {f"GIT_{who}_{what}": "t@t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(
        ["git", *args], cwd=cwd, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def mirror(place: Place, tmp_path: Path) -> Path:
    work, bare = tmp_path / "work", place.data / "git" / "mirror.git"
    git("init", "-q", "-b", "main", str(work))
    (work / "a").write_text("a\n")
    git("add", "a", cwd=work)
    git("commit", "-qm", "one", cwd=work)
    bare.parent.mkdir(parents=True)
    git("clone", "-q", "--mirror", str(work), str(bare))
    git("update-ref", "refs/harness/import/x", "main", cwd=bare)
    return bare


@pytest.mark.parametrize("version", ["0", "1", "2"])
def test_git_fetches_through_the_forwarder_and_never_pushes(
    place: Place, mirror: Path, tmp_path: Path, version: str
) -> None:
    from harness.gateway.forwarder import Forwarder

    folder = place.gateway().open("12.1", TOKEN, 1)
    forwarder = Forwarder(folder / "gateway.sock", TOKEN, 1)
    forwarder.start()
    try:
        clone = tmp_path / "clone"
        config = ("-c", f"protocol.version={version}")
        git(*config, "clone", "-q", forwarder.git_url, str(clone))
        assert (clone / "a").read_text() == "a\n"
        assert "refs/harness" not in git(*config, "ls-remote", forwarder.git_url)
        (clone / "b").write_text("b\n")
        git("add", "b", cwd=clone)
        git("commit", "-qm", "two", cwd=clone)
        env = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
        pushed = subprocess.run(
            ["git", *config, "push", "-q", "origin", "main:x"],
            cwd=clone,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert pushed.returncode != 0 and "403" in pushed.stderr
        assert "refs/heads/x" not in git("for-each-ref", cwd=mirror)
    finally:
        forwarder.close()


def test_a_long_fetch_request_is_packed_and_bounded(place: Place, mirror: Path, tmp_path: Path) -> None:
    import gzip

    c = client(place.gateway().open("12.1", TOKEN, 1))
    bomb = gzip.compress(b"0" * (16 << 20))
    headers = {"content-encoding": "gzip"}
    assert c.post("/git/mirror.git/git-upload-pack", content=bomb, headers=headers).status_code == 413
    assert c.post("/git/mirror.git/git-upload-pack", content=b"no gzip", headers=headers).status_code == 413


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/git/mirror.git/info/refs"),
        ("GET", "/git/mirror.git/info/refs?service=git-receive-pack"),
        ("POST", "/git/mirror.git/git-receive-pack"),
        ("GET", "/git/mirror.git/HEAD"),
        ("GET", "/git/mirror.git/objects/info/packs"),
        ("GET", "/git/quarantine.git/info/refs?service=git-upload-pack"),
        ("GET", "/git/../git/mirror.git/config"),
        ("GET", "/git/%2e%2e/model-ledger.json"),
    ],
)
def test_nothing_but_a_fetch_is_served(place: Place, mirror: Path, method: str, path: str) -> None:
    c = client(place.gateway().open("12.1", TOKEN, 1))
    assert c.request(method, path).status_code in (403, 404, 405)


def test_bundles_are_kept_whole_or_not_at_all(place: Place) -> None:
    gateway = place.gateway()
    c = client(gateway.open("12.1", TOKEN, 1))
    inbox = place.data / "attempts" / "12.1" / "inbox"
    assert c.post("/git/bundle", content=b"").status_code == 400
    assert c.post("/git/bundle", content=b"x" * 10).json() == {"sha256": sha(b"x" * 10), "bytes": 10}
    assert c.post("/git/bundle", content=b"x" * 10).status_code == 200
    chunks = (b"x" * (1 << 20) for _ in range(51))
    assert c.post("/git/bundle", content=chunks).status_code == 413
    raw = socket.socket(socket.AF_UNIX)
    raw.connect(str(next(place.runtime.iterdir()) / "gateway.sock"))
    who = f"{wire.TOKEN_HEADER}: {TOKEN}\r\n{wire.INCARNATION_HEADER}: 1\r\n"
    raw.sendall(
        f"POST /git/bundle HTTP/1.1\r\nhost: g\r\n{who}".encode() + b"content-length: 1000\r\n\r\n" + b"half"
    )
    until(lambda: list(inbox.glob(".*.part")))
    raw.close()
    until(lambda: not list(inbox.glob(".*.part")))
    assert [x.name for x in inbox.iterdir()] == [f"{sha(b'x' * 10)}.bundle"]


def test_a_link_in_place_of_the_journal_is_not_followed(place: Place, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine\n")
    folder = place.data / "attempts" / "12.1"
    folder.mkdir(parents=True)
    (folder / "witness.jsonl").symlink_to(secret)
    with pytest.raises(GatewayError, match=r"cannot write .*witness\.jsonl"):
        place.gateway().open("12.1", TOKEN, 1)
    assert secret.read_text() == "mine\n"
