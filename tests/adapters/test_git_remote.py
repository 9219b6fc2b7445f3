"""Talking to the forge: credentials, outages, lost answers. A real `git http-backend` that can misbehave."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import git_world as world

from harness.adapters.git import GitLimits, GitRepo
from harness.core.result import Err, Ok, Result
from harness.failures import Failure

MAIN = "refs/heads/main"


class FixedClock:
    def now(self) -> float:
        return 1_700_000_000.0

    def monotonic(self) -> float:
        return 0.0


class Tokens:
    """A provider that hands out one token after another, and the last one for ever."""

    def __init__(self, *tokens: str) -> None:
        self.left = list(tokens)
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


class Net:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.origin = world.Origin(root / "forge")
        self.main = self.origin.push(MAIN, {"a": "1"})
        self.server = world.GitServer(root / "forge")
        self.plan = self.server.plan

    def repo(self, token: Tokens | None = None, **limits: float) -> GitRepo:
        made = GitRepo(
            self.root / "data",
            remote=self.server.url(self.origin),
            token=token,
            author=("Harness", "harness@acme.example"),
            clock=FixedClock(),
            limits=GitLimits(**limits),  # type: ignore[arg-type]
        )
        assert made.prepare() == Ok(None)
        return made

    def fault(self, part: str, status: int) -> None:
        self.plan.fault = lambda r: world.answer(r, status) if part in r.path else False


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Net]:
    made = Net(tmp_path)
    try:
        yield made
    finally:
        made.plan.fault = None
        made.server.close()


def failed(result: Result[object], failure: Failure) -> Err:
    assert isinstance(result, Err) and result.failure == failure, result
    return result


# ---------------------------------------------------------------- credentials


def test_a_token_that_expired_is_asked_for_again_once(net: Net) -> None:
    net.plan.passwords = {"T1-secret"}
    tokens = Tokens("T1-secret", "T1-secret", "T2-secret")
    repo = net.repo(tokens)
    assert isinstance(repo.fetch(), Ok)
    net.plan.passwords = {"T2-secret"}
    assert repo.push("refs/heads/agent/1", net.main, "") == Ok(net.main)
    assert net.origin.ref("refs/heads/agent/1") == net.main
    assert tokens.asked == 3


def test_a_second_refusal_is_final_and_tells_no_token(net: Net) -> None:
    net.plan.passwords = {"other"}
    tokens = Tokens("T1-secret", "T2-secret")
    err = failed(net.repo(tokens).fetch(), Failure.AUTH_FAILED)
    assert tokens.asked == 2
    assert "secret" not in err.detail and "token" in err.detail
    pushed = failed(net.repo(Tokens("T1-secret")).remote_refs(), Failure.AUTH_FAILED)
    assert not pushed.maybe


def test_the_token_is_in_no_file_and_in_no_command_line(net: Net, tmp_path: Path) -> None:
    lines: set[bytes] = set()

    def spy(request: BaseHTTPRequestHandler) -> bool:
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                lines.add(Path(f"/proc/{pid}/cmdline").read_bytes())
            except OSError:
                continue  # it has ended meanwhile
        return False

    net.plan.passwords = {"T1-secret"}
    net.plan.fault = spy
    repo = net.repo(Tokens("T1-secret"))
    assert isinstance(repo.fetch(), Ok)
    assert isinstance(repo.push("refs/heads/agent/1", net.main, ""), Ok)
    basic = net.plan.seen[-1].authorization.removeprefix("Basic ")
    assert basic
    assert any(b"git\0push\0" in line or b"git-remote-http" in line for line in lines)
    for canary in (b"T1-secret", basic.encode()):
        assert not any(canary in line for line in lines)
        for path in (tmp_path / "data").rglob("*"):
            assert not path.is_file() or canary not in path.read_bytes(), path


def test_a_redirect_is_not_followed_with_our_token(net: Net) -> None:
    other = world.GitServer(net.root / "forge")
    try:
        net.plan.fault = lambda r: redirect(r, other.url(net.origin).rpartition("/")[0] + r.path)
        err = failed(net.repo(Tokens("T1-secret")).fetch(), Failure.CONFIG_INVALID)
        assert "moved" in err.detail
        assert other.plan.seen == []
    finally:
        other.close()


def redirect(request: BaseHTTPRequestHandler, to: str) -> bool:
    request.send_response(301)
    request.send_header("Location", to)
    request.send_header("Content-Length", "0")
    request.end_headers()
    return True


def test_a_remote_with_a_credential_in_it_is_refused(tmp_path: Path) -> None:
    for remote, word in (
        ("https://me:pw@forge.example/x.git", "credential"),
        ("ssh://forge.example/x", "https"),
    ):
        repo = GitRepo(
            tmp_path, remote=remote, token=None, author=("H", "h@acme.example"), clock=FixedClock()
        )
        err = failed(repo.prepare(), Failure.CONFIG_INVALID)
        assert word in err.detail and "pw" not in err.detail


# ---------------------------------------------------------------- outages


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (403, Failure.AUTH_FAILED),
        (404, Failure.CONFIG_INVALID),
        (429, Failure.FORGE_RATE_LIMITED),
        (500, Failure.FORGE_DOWN),
        (502, Failure.FORGE_DOWN),
        (503, Failure.FORGE_DOWN),
    ],
)
def test_statuses_of_the_forge(net: Net, status: int, failure: Failure) -> None:
    repo = net.repo()
    assert isinstance(repo.fetch(), Ok)
    net.fault("/", status)
    for result in (repo.fetch(), repo.remote_refs()):
        assert not failed(result, failure).maybe
    # A push that ended in an outage may have arrived; one that was refused has not.
    assert failed(repo.push("refs/heads/x", net.main, ""), failure).maybe == (failure is Failure.FORGE_DOWN)
    net.plan.fault = None
    assert isinstance(repo.fetch(), Ok)


def test_a_forge_that_is_not_there(net: Net) -> None:
    repo = net.repo()
    net.server.close()
    failed(repo.fetch(), Failure.FORGE_DOWN)
    net.server = world.GitServer(net.root / "forge")


def test_a_forge_that_accepts_and_never_answers(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/widget.git"
        limits = GitLimits(look_s=1.0, fetch_s=1.0)
        repo = GitRepo(
            tmp_path, remote=url, token=None, author=("H", "h@x.example"), clock=FixedClock(), limits=limits
        )
        assert repo.prepare() == Ok(None)
        began = time.monotonic()
        failed(repo.fetch(), Failure.FORGE_DOWN)
        failed(repo.remote_refs(), Failure.FORGE_DOWN)
        assert time.monotonic() - began < 8
    assert not [p for p in children() if "git-remote-http" in p and url in p]


def children() -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.append(
                Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )
        except OSError:
            continue  # it has ended meanwhile
    return found


def test_a_fetch_that_breaks_off_leaves_no_partial_refs(net: Net) -> None:
    repo = net.repo()
    assert repo.fetch() == Ok({MAIN: net.main})
    for name in ("one", "two"):
        net.origin.push(f"refs/heads/{name}", {name: os.urandom(200_000).hex()}, start=net.main)

    def cut(request: BaseHTTPRequestHandler) -> bool:
        if "git-upload-pack" not in request.path or request.command != "POST":
            return False
        request.send_response(200)
        request.send_header("Content-Type", "application/x-git-upload-pack-result")
        request.send_header("Content-Length", "100000")
        request.end_headers()
        request.wfile.write(b"000dpackfile\n2004\x01PACK" + b"x" * 1000)
        request.connection.shutdown(socket.SHUT_RDWR)
        return True

    net.plan.fault = cut
    failed(repo.fetch(), Failure.FORGE_DOWN)
    assert repo.mirror.refs() == {MAIN: net.main}
    net.plan.fault = None
    refs = repo.fetch()
    assert isinstance(refs, Ok)
    assert set(refs.value) == {MAIN, "refs/heads/one", "refs/heads/two"}


# ---------------------------------------------------------------- lost answers


def lose_answer(net: Net, *, before: bool, deaf_after: bool = False) -> None:
    """The connection of a push is cut before or after the forge took it in; then perhaps nobody answers."""
    state = {"cut": False}

    def cut(request: BaseHTTPRequestHandler) -> bool:
        if state["cut"] and deaf_after:
            return world.answer(request, 503)
        if request.command != "POST" or "git-receive-pack" not in request.path:
            return False
        state["cut"] = True
        if not before:
            net.origin.set("refs/heads/agent/1", net.main)
        request.connection.shutdown(socket.SHUT_RDWR)
        return True

    net.plan.fault = cut


def test_a_push_whose_answer_was_lost_but_that_happened_is_ok(net: Net) -> None:
    repo = net.repo()
    repo.fetch()
    lose_answer(net, before=False)
    assert repo.push("refs/heads/agent/1", net.main, "") == Ok(net.main)


def test_a_push_whose_answer_was_lost_may_still_happen(net: Net) -> None:
    repo = net.repo()
    repo.fetch()
    lose_answer(net, before=True)
    assert failed(repo.push("refs/heads/agent/1", net.main, ""), Failure.FORGE_DOWN).maybe
    net.plan.fault = None
    assert repo.push("refs/heads/agent/1", net.main, "") == Ok(net.main)


def test_a_push_that_nobody_can_tell_about_is_maybe(net: Net) -> None:
    repo = net.repo()
    repo.fetch()
    lose_answer(net, before=False, deaf_after=True)
    assert failed(repo.push("refs/heads/agent/1", net.main, ""), Failure.FORGE_DOWN).maybe
    net.plan.fault = None
    assert repo.push("refs/heads/agent/1", net.main, "") == Ok(net.main)


def test_a_push_that_came_too_late_and_cannot_be_read_back_is_no_conflict(net: Net) -> None:
    """Its own earlier try, whose answer was lost, arrives between the look and the push."""
    repo = net.repo()
    repo.fetch()
    state = {"pushed": False}

    def late(request: BaseHTTPRequestHandler) -> bool:
        if state["pushed"]:
            return world.answer(request, 503)
        if request.command == "POST" and "git-receive-pack" in request.path:
            net.origin.set("refs/heads/agent/1", net.main)
            state["pushed"] = True
        return False

    net.plan.fault = late
    assert failed(repo.push("refs/heads/agent/1", net.main, ""), Failure.FORGE_DOWN).maybe
    net.plan.fault = None
    assert repo.push("refs/heads/agent/1", net.main, "") == Ok(net.main)


def test_a_stop_in_the_middle_of_a_push_leaves_no_lock(net: Net, tmp_path: Path) -> None:
    repo = net.repo()
    repo.fetch()
    reached, goes_on = threading.Event(), threading.Event()

    def hold(request: BaseHTTPRequestHandler) -> bool:
        if request.command == "POST":
            reached.set()
            goes_on.wait(20)
        return False

    net.plan.fault = hold
    results: list[Result[str]] = []
    pushing = threading.Thread(target=lambda: results.append(repo.push("refs/heads/agent/1", net.main, "")))
    pushing.start()
    assert reached.wait(20)
    began = time.monotonic()
    repo.close()
    pushing.join(10)
    assert time.monotonic() - began < 5
    goes_on.set()
    assert failed(results[0], Failure.INFRA_KILLED).maybe
    assert not list((tmp_path / "data/git").rglob("*.lock")) or all(
        p.name in ("mirror.lock", "quarantine.lock", "modules.lock")
        for p in (tmp_path / "data/git").rglob("*.lock")
    )
    failed(repo.fetch(), Failure.INFRA_KILLED)
    net.plan.fault = None
    again = net.repo()
    assert again.push("refs/heads/agent/1", net.main, None) == Ok(net.main)


def test_large_files_and_workflow_scope_are_the_forges_policy(net: Net) -> None:
    repo = net.repo()
    repo.fetch()
    for words in (
        "GH001: Large files detected.",
        "refusing to allow an OAuth App to create or update workflow .github/workflows/x.yml",
    ):
        net.origin.hook("pre-receive", f"echo 'error: {words}' >&2; exit 1")
        err = failed(repo.push("refs/heads/agent/1", net.main, ""), Failure.POLICY_VIOLATION)
        assert words[:30] in err.detail
        assert not err.maybe


def test_two_pushes_at_once_have_one_winner(net: Net) -> None:
    repo = net.repo()
    repo.fetch()
    shas = []
    for n in range(6):
        note = repo.note_commit(f"epoch {n}")
        assert isinstance(note, Ok)
        shas.append(note.value)
    results: dict[str, Result[str]] = {}
    threads = [
        threading.Thread(target=lambda s=s: results.update({s: repo.push("refs/harness/epoch", s, "")}))
        for s in shas
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    won = [s for s, r in results.items() if isinstance(r, Ok)]
    assert len(won) == 1, results
    assert net.origin.ref("refs/harness/epoch") == won[0]
    for sha, result in results.items():
        if sha not in won:
            busy = isinstance(result, Err) and result.failure == Failure.FORGE_DOWN
            failed(repo.push("refs/harness/epoch", sha, "") if busy else result, Failure.CONFLICT)


def test_a_ref_that_the_forge_is_still_busy_with_is_no_conflict(net: Net) -> None:
    """A push that was killed leaves the forge at work on it: nothing moved, so nobody may be blamed for it."""
    repo = net.repo()
    repo.fetch()
    lock = net.origin.path / "refs/heads/agent/1.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    assert failed(repo.push("refs/heads/agent/1", net.main, ""), Failure.FORGE_DOWN).maybe
    lock.unlink()
    assert repo.push("refs/heads/agent/1", net.main, "") == Ok(net.main)
