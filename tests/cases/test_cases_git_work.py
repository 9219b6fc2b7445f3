"""What agents leave in a clone: everything is taken as it is, or refused in one line that names the file.

The one rule: nothing uncommitted is lost, and nothing that the director would choke on gets past it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from git_stage import AS_SOMEBODY, BASE, Delivery, Place, deliver
from git_world import CLEAN, text

from harness.adapters.clone import BROKEN_LOOKS, WorkClone
from harness.compose.director import screened
from harness.core.redact import Redactor
from harness.core.result import Err, Ok
from harness.domain import WorkTree
from harness.failures import Failure
from harness.policy import Policy
from harness.ports import Unseen

COMMIT = f"{AS_SOMEBODY} commit -q -m"


def paths(made: Delivery) -> list[bytes]:
    assert isinstance(made.imported, Ok), made.refused
    return sorted(bytes.fromhex(f.raw_hex) for f in made.imported.value.files)


# ---------------------------------------------------------------- where the work is

PLACES = (
    "echo x >new.txt",
    f"echo x >new.txt; git add -A; {COMMIT} mine",
    f"git checkout -q --detach; echo x >new.txt; git add -A; {COMMIT} mine",
    "git checkout -q --detach; echo x >new.txt",
    f"git checkout -q -b my/own; echo x >new.txt; git add -A; {COMMIT} mine",
    f"git checkout -q -b my/own; echo x >new.txt; git add -A; {COMMIT} mine; git branch -D agent/1",
    f"git branch -m agent/1 main; echo x >new.txt; git add -A; {COMMIT} mine",
    f"git checkout -q --detach; echo x >new.txt; git add -A; {COMMIT} mine; git branch agent/1.bak; echo 2 >>new.txt",
    "echo x >new.txt; git add new.txt; git stash -q; git stash pop -q",
    f"echo x >new.txt; git add -A; {COMMIT} one; git reset -q --soft HEAD~1",
    "echo x >new.txt; git update-index --assume-unchanged README.md",
)


@pytest.mark.parametrize("script", PLACES)
def test_work_is_found_wherever_the_agent_left_its_head(script: str, tmp_path: Path) -> None:
    made = deliver(tmp_path, script)
    assert made.refused == "" and paths(made) == [b"new.txt"]
    assert made.git("symbolic-ref", "HEAD") == "refs/heads/agent/1"
    assert made.git("status", "--porcelain") == ""
    seen = made.clone.look(made.place.tip)
    assert isinstance(seen, Ok) and seen.value.ahead and not seen.value.dirty


def test_a_detached_head_counts_as_changes_before_anything_is_committed(tmp_path: Path) -> None:
    made = deliver(tmp_path, "true")
    subprocess.run(
        ["sh", "-ec", f"git checkout -q --detach; echo x >new.txt; git add -A; {COMMIT} mine"],
        cwd=made.folder, env=CLEAN, check=True, timeout=30,
    )  # fmt: skip
    seen = made.clone.look(made.place.tip)
    assert isinstance(seen, Ok) and (seen.value.ahead, seen.value.dirty) == (1, 0)


def test_history_of_another_root_is_refused_by_name(tmp_path: Path) -> None:
    made = deliver(tmp_path, f"git checkout -q --orphan fresh; echo x >new.txt; git add -A; {COMMIT} fresh")
    assert "its history is another one, or was rewritten" in made.refused
    assert isinstance(made.imported, Err) and made.imported.failure == Failure.CONFLICT
    sha = made.git("rev-parse", "HEAD")
    assert made.git("rev-parse", "agent/1") == sha, "the commits stay reachable"


# ---------------------------------------------------------------- a repository inside the repository

NESTED = (
    ("git init -q vendor/tool", "vendor/tool"),
    ("git init -q vendor/tool; touch vendor/tool/a", "vendor/tool"),
    (f"git init -q vendor/tool; cd vendor/tool; touch a; git add a; {COMMIT} x", "vendor/tool"),
    (f"git init -q 'two words'; cd 'two words'; touch a; git add a; {COMMIT} x", "two words"),
    (
        f"git init -q a/b/c; cd a/b/c; touch a; git add a; {COMMIT} x; cd ../../..; git add -A; {COMMIT} y",
        "a/b/c",
    ),
    ("git clone -q --bare . copy.git; git clone -q copy.git copy; rm -rf copy.git", "copy"),
)


@pytest.mark.parametrize(("script", "path"), NESTED)
def test_a_repository_inside_is_named_with_what_to_do(script: str, path: str, tmp_path: Path) -> None:
    made = deliver(tmp_path, f"echo x >real.txt; {script}")
    assert made.refused.endswith(
        f"NESTED_REPO: {path} is a repository of its own, not a submodule: remove its .git folder"
    )
    failed = made.committed if isinstance(made.committed, Err) else made.imported
    assert isinstance(failed, Err) and failed.failure == Failure.POLICY_VIOLATION


def test_a_bare_repository_inside_is_only_files(tmp_path: Path) -> None:
    made = deliver(tmp_path, "echo x >real.txt; git init -q --bare fixtures/repo; rm -r fixtures/repo/hooks")
    assert b"fixtures/repo/HEAD" in paths(made)


def test_leftovers_of_tools_and_of_ours_are_no_work(tmp_path: Path) -> None:
    script = "mkdir -p src/__pycache__ .harness-run; touch src/__pycache__/a.pyc .harness-run/x .aider.chat.history.md"
    made = deliver(tmp_path, script)
    assert made.git("status", "--porcelain") == ""
    assert isinstance(made.committed, Ok) and not made.committed.value["changed"]


# ---------------------------------------------------------------- names

# As files are named, whether they may land.
NAMES: tuple[tuple[bytes, str], ...] = (
    ("špatně.txt".encode(), ""),
    (b"a b.txt", ""),
    (b"-dash", ""),
    (b":(top)x.txt", ""),
    (b":colon", ""),
    (b"star*[a].txt", ""),
    (b'quo"te.txt', ""),
    (b"back\\slash.txt", ""),
    (b"bad\xff.txt", ""),
    (b"\xe9t\xe9.txt", ""),
    ("e\u0301.txt".encode(), ""),
    (b" lead and trail ", ""),
    (b"%41.txt", ""),
    (b"a" * 250, ""),
    (b"line\nbreak.txt", "control characters"),
    (b"tab\tted.txt", "control characters"),
    (b"\x1b[31mred.txt", "control characters"),
    ("evil\u202etxt.exe".encode(), "turns the writing around"),
)


def named(root: Path, names: list[bytes]) -> Delivery:
    folder = os.fsencode(root) + b"/named"
    os.mkdir(folder)
    for name in names:
        with open(folder + b"/" + name, "wb") as f:
            f.write(b"harmless\n")
    return deliver(root, f"cp -r '{root}'/named/. .")


def test_names_of_any_bytes_are_taken_byte_for_byte(tmp_path: Path) -> None:
    names = [name for name, why in NAMES if not why]
    made = named(tmp_path, names)
    assert made.refused == "" and paths(made) == sorted(names)
    shown = {f.path for f in made.imported.unwrap().files}  # type: ignore[union-attr]
    assert shown == {name.decode("utf-8", "replace") for name in names}


@pytest.mark.parametrize(("name", "why"), [(n, why) for n, why in NAMES if why])
def test_names_that_act_on_whoever_reads_them_are_refused(name: bytes, why: str, tmp_path: Path) -> None:
    made = named(tmp_path, [name])
    assert why in made.refused and paths(made) == [name]
    assert made.refused.isprintable() and "\\" not in made.refused


def test_a_secret_hides_in_no_name(tmp_path: Path) -> None:
    """What cannot be shown can be read all the same; two names that are shown alike are not read at all."""
    token = "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345"
    one = deliver(tmp_path / "one", f"printf 'key = {token}\\n' >\"$(printf 'a\\377.py')\"")
    assert "looks like a secret in line 1" in one.refused and token not in one.refused
    script = f"printf 'key = {token}\\n' >\"$(printf 'a\\377.py')\"; echo fine >\"$(printf 'a\\376.py')\""
    two = deliver(tmp_path / "two", script)
    assert "could not be read" in two.refused


# ---------------------------------------------------------------- links

LINKS = (
    ("ln -s src/app.py inside", ""),
    ("ln -s ../README.md docs/up", ""),
    ("ln -s .github docs/.git-like", ""),
    ("mkdir .gitx; touch .gitx/a; ln -s .gitx/a g", ".gitx/a"),
    ("ln -s /etc/passwd pw", "SYMLINK_ESCAPE: pw points to /etc/passwd"),
    ("ln -s ../../outside.md up", "SYMLINK_ESCAPE: up points to ../../outside.md"),
    ("ln -s .git/config c", "SYMLINK_ESCAPE: c points to .git/config"),
    ("ln -s .GIT/config c", "SYMLINK_ESCAPE: c points to .GIT/config"),
    ("ln -s docs/../../out c", "SYMLINK_ESCAPE: c points to docs/../../out"),
    ("rm -r docs; ln -s /tmp docs", "SYMLINK_ESCAPE: docs points to /tmp"),
)


@pytest.mark.parametrize(("script", "why"), LINKS)
def test_links_stay_inside_or_do_not_come_in(script: str, why: str, tmp_path: Path) -> None:
    made = deliver(tmp_path, script)
    assert why in made.refused and bool(why) == bool(made.refused)


def test_nothing_of_ours_is_written_through_a_link_of_the_repository(tmp_path: Path) -> None:
    """A tracked link that leads out, with the names of files that we or agents write."""
    outside = tmp_path / "outside.md"
    outside.write_text("theirs\n")
    names = ("AGENTS.md", "CLAUDE.md", ".aider.conf.yml", "work.bundle", "saved.json", "question.md")
    place = Place(tmp_path, BASE)
    links = "; ".join(f"ln -s '{outside}' {n}" for n in names)
    subprocess.run(["sh", "-ec", links], cwd=place.origin.person, env=CLEAN, check=True, timeout=30)
    text("add", "-A", cwd=place.origin.person)
    text("commit", "-q", "-m", "links", cwd=place.origin.person)
    place.tip = text("rev-parse", "HEAD", cwd=place.origin.person)
    text("push", "-q", str(place.origin.path), "HEAD:refs/heads/main", cwd=place.origin.person)
    assert isinstance(place.repo.fetch(), Ok)
    made = deliver(tmp_path, "echo x >new.txt", place=place)
    assert made.clone.save("kept", place.tip) == Ok(
        {"saved": True, "sha": made.git("rev-parse", "refs/harness/saved")}
    )
    assert outside.read_text() == "theirs\n" and paths(made) == [b"new.txt"]


# ---------------------------------------------------------------- sizes


def test_a_large_file_is_refused_also_when_it_is_gone_again(tmp_path: Path) -> None:
    big = "head -c 6000000 /dev/urandom >big.bin"
    made = deliver(tmp_path / "a", f"echo x >small.txt; {big}")
    assert made.refused.startswith("FILE_TOO_LARGE: big.bin has 6000000 bytes, more than 5242880; ")
    gone = f"{big}; git add -A; {COMMIT} big; git rm -q big.bin; echo x >small.txt; git add -A; {COMMIT} gone"
    made = deliver(tmp_path / "b", gone)
    assert made.refused.startswith("FILE_TOO_LARGE: big.bin has 6000000 bytes")
    assert "must leave the history too" in made.refused
    assert made.place.origin.ref("refs/heads/agent/1") == ""


def test_more_than_a_bundle_holds_is_told_by_the_largest_files(tmp_path: Path) -> None:
    script = "for i in 1 2 3 4; do head -c ${i}70000 /dev/urandom >big$i.bin; done"
    made = deliver(tmp_path, script, limit_bytes=1_000_000)
    assert made.refused.startswith("FILE_TOO_LARGE: the work has ") and "more than 1000000" in made.refused
    assert made.refused.endswith(
        "the largest files: big4.bin (470000 bytes), big3.bin (370000 bytes), big2.bin (270000 bytes)"
    )


# ---------------------------------------------------------------- what a killed git leaves

LOCKS = (
    ".git/index.lock",
    ".git/HEAD.lock",
    ".git/config.lock",
    ".git/packed-refs.lock",
    ".git/refs/heads/agent/1.lock",
    ".git/index.lock .git/HEAD.lock .git/refs/heads/agent/1.lock",
)


@pytest.mark.parametrize(
    ("locks", "age"), [(LOCKS[0], "10 minutes ago"), *((locks, "now") for locks in LOCKS)]
)
def test_a_lock_that_nobody_holds_stops_no_commit(
    locks: str, age: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = deliver(
        tmp_path,
        f"echo x >new.txt; mkdir -p .git/refs/heads/agent; touch -d '{age}' {locks}; git checkout -q --detach || :",
    )
    assert made.refused == "" and paths(made) == [b"new.txt"]
    told = [r.getMessage() for r in caplog.records if "stale lock" in r.getMessage()]
    assert len(told) == len(locks.split()) and all(" s old" in t for t in told)
    assert not list((made.folder / ".git").rglob("*.lock"))


HOLD = "import os, sys, time; f = open('.git/index.lock', 'w'); print('held', flush=True); time.sleep(60)"


def test_a_lock_that_somebody_holds_is_left(tmp_path: Path) -> None:
    made = deliver(tmp_path, "true")
    (made.folder / "new.txt").write_text("x\n")
    holder = subprocess.Popen([sys.executable, "-c", HOLD], cwd=made.folder, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        again = made.clone.commit("work\n", (), time.time(), made.place.tip)
        assert isinstance(again, Err) and "index.lock" in again.detail
    finally:
        holder.kill()
        holder.wait()
    assert isinstance(made.clone.commit("work\n", (), time.time(), made.place.tip), Ok)


# ---------------------------------------------------------------- a clone that is none any more

BREAKAGES = (
    "rm -rf .git",
    "echo garbage >.git/HEAD",
    "rm .git/HEAD",
    "echo '[core' >.git/config",
    "rm -rf .git/objects",
    "rm -rf .git; touch .git",
    "rm -rf .git; ln -s /nonexistent .git",
)


@pytest.mark.parametrize("script", BREAKAGES)
def test_a_clone_that_git_refuses_is_an_answer_and_no_wait(script: str, tmp_path: Path) -> None:
    """Also below a repository of somebody else, which must never be taken for the clone."""
    root = tmp_path / "theirs"
    text("init", "-q", "-b", "main", str(root), cwd=tmp_path)
    made = deliver(root, f"echo x >new.txt; {script}")
    assert isinstance(made.committed, Err), "nothing was committed anywhere"
    seen = [made.clone.look(made.place.tip) for _ in range(BROKEN_LOOKS)]
    assert all(isinstance(x, Err) for x in seen[:-1])
    last = seen[-1]
    assert isinstance(last, Ok) and "exited 128" in last.value.broken and "\n" not in last.value.broken
    assert isinstance(made.clone.save("kept", made.place.tip), Err)
    assert text("for-each-ref", cwd=root) == "" and text("ls-files", cwd=root) == ""


@pytest.mark.parametrize("damage", ["echo garbage >.git/index", ": >.git/index"])
def test_an_index_that_was_cut_off_is_made_anew(damage: str, tmp_path: Path) -> None:
    made = deliver(tmp_path, f"echo x >new.txt; {damage}")
    looks = [made.clone.look(made.place.tip) for _ in range(BROKEN_LOOKS)]
    last = looks[-1]
    assert isinstance(last, Ok) and not last.value.broken
    again = made.clone.commit("work\n", (), 1_700_000_000.0, made.place.tip)
    assert isinstance(again, Ok) and again.value["changed"]
    assert made.git("diff", "--name-only", made.place.tip, "HEAD") == "new.txt"


SHORT = (
    "fatal: Out of memory, malloc failed (tried to allocate 4096 bytes)",
    "error: cannot fork() for status: Resource temporarily unavailable",
    "fatal: unable to create temporary file: No space left on device",
)


@pytest.mark.parametrize("said", SHORT)
def test_a_machine_that_is_short_of_something_is_no_agents_doing(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three looks in a row would be a clone that the agent damaged, which nobody tries again."""
    made = deliver(tmp_path, "echo x >new.txt")
    tools = tmp_path / "short"
    tools.mkdir()
    (tools / "git").write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 128\n")
    (tools / "git").chmod(0o755)
    path = made.clone._env["PATH"]
    made.clone._env["PATH"] = f"{tools}:{path}"
    monkeypatch.setenv("PATH", f"{tools}:{path}")
    for _ in range(2 * BROKEN_LOOKS):
        assert isinstance(made.clone.look(made.place.tip), Err)
    for told in (
        made.clone.commit("more\n", (), time.time(), made.place.tip),
        made.clone.bundle("f" * 40, made.place.tip),
    ):
        assert isinstance(told, Err) and told.failure == Failure.INFRA_KILLED, told


def test_a_moment_without_an_answer_is_no_broken_clone(tmp_path: Path) -> None:
    made = deliver(tmp_path, "true")
    head = made.folder / ".git" / "HEAD"
    kept = head.read_text()
    for _ in range(2 * BROKEN_LOOKS):
        head.write_text("garbage\n")
        assert isinstance(made.clone.look(made.place.tip), Err)
        head.write_text(kept)
        seen = made.clone.look(made.place.tip)
        assert isinstance(seen, Ok) and isinstance(seen.value, WorkTree) and not seen.value.broken


def test_a_change_that_cannot_be_read_just_now_is_neither_blocked_nor_let_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the new text nobody knows whether there is a secret in it, of the old one how many tests there were."""
    place = Place(tmp_path, {**BASE, "tests/test_x.py": "def test_one(): pass\ndef test_two(): pass\n"})
    made = deliver(tmp_path, "echo 'def test_one(): pass' >tests/test_x.py", place=place)
    assert made.screened is not None and made.screened.review and not made.screened.blocked
    imported, read = made.imported.unwrap(), place.repo.read_file
    for sha in (imported.sha, imported.base):
        late = Err(Failure.TIMEOUT, "git cat-file took longer than allowed")
        monkeypatch.setattr(
            place.repo,
            "read_file",
            lambda at, path, sha=sha, late=late: late if at == sha else read(at, path),
        )
        with pytest.raises(Unseen, match="took longer"):
            screened(imported, Policy(), place.repo, Redactor())


# ---------------------------------------------------------------- hooks, and git's settings

SETTINGS = (
    "printf '#!/bin/sh\\ntouch HOOKED; echo lint: 2 problems; exit 1\\n' >.git/hooks/pre-commit; "
    "chmod +x .git/hooks/pre-commit",
    "mkdir .husky; printf '#!/bin/sh\\ntouch HOOKED; exit 1\\n' >.husky/pre-commit; chmod +x .husky/pre-commit; "
    "git config core.hooksPath .husky; echo .husky >.git/info/exclude",
    "git config commit.gpgSign true; git config user.signingKey nobody; git config gpg.program false",
    "git config commit.cleanup strip; git config core.commentChar w",
    "git config core.fsmonitor 'touch HOOKED'",
    "git config filter.x.clean 'touch HOOKED; false'; git config filter.x.required true; git config core.autocrlf input",
    "git config user.name 'Some Agent'; git config user.email agent@agents.example",
    "git config core.fileMode false; git config core.ignoreCase true",
    "git config status.showUntrackedFiles no",
)


@pytest.mark.parametrize("script", SETTINGS)
def test_nothing_that_an_agent_set_up_runs_when_we_commit(script: str, tmp_path: Path) -> None:
    """What validates a change are the validation's commands; hooks of a clone are not asked."""
    made = deliver(tmp_path, f"mkdir -p .git/hooks; {script}; echo x >new.txt")
    assert made.refused == "" and paths(made) == [b"new.txt"]
    assert not (made.folder / "HOOKED").exists()
    said = made.git("log", "-1", "--format=%an <%ae> %cn|%s")
    assert said == "harness <harness@localhost> harness|work"


def test_a_polling_look_never_takes_the_index(tmp_path: Path) -> None:
    """Forty looks while another process commits forty times: none of its commits meets a lock."""
    made = deliver(tmp_path, "true")
    loop = f"for i in $(seq 40); do echo $i >f$i; git add f$i || exit 3; {COMMIT} c$i || exit 4; done"
    agent = subprocess.Popen(["sh", "-c", loop], cwd=made.folder, env=CLEAN, stderr=subprocess.PIPE)
    looks = 0
    while agent.poll() is None:
        made.clone.look(made.place.tip)
        looks += 1
    assert agent.returncode == 0 and looks > 5, agent.stderr.read() if agent.stderr else b""
    assert made.git("rev-list", "--count", f"{made.place.tip}..HEAD") == "40"


def test_a_clone_of_another_user_is_worked_in_by_its_exact_path(tmp_path: Path) -> None:
    made = deliver(tmp_path, "echo x >new.txt")
    env = made.clone._env
    assert (env["GIT_CONFIG_KEY_0"], env["GIT_CONFIG_VALUE_0"]) == ("safe.directory", str(made.folder))
    other = WorkClone(made.folder, tmp_path / "audit-1", "agent/1", tmp_path, lambda: "")
    other._env["GIT_TEST_ASSUME_DIFFERENT_OWNER"] = "1"
    (made.folder / "more.txt").write_text("x\n")
    assert isinstance(other.look(made.place.tip), Ok)
    assert isinstance(other.commit("more\n", (), time.time(), made.place.tip), Ok)
    assert not (tmp_path / ".gitconfig").exists()
