"""Working copies: a clone of its own for an attempt, and a clean tree for a gate.

The one rule: git runs in such a folder only while we make it. Once its ownership file says that it is
complete, somebody else may have written there: then we look with plain file calls, or remove it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness.adapters.git.errors import fail
from harness.adapters.git.folders import discard, read_owner, write_owner
from harness.adapters.git.limits import GitLimits
from harness.adapters.git.locks import heal_clone
from harness.adapters.git.mirror import Mirror, checked_ref, checked_sha
from harness.adapters.git.runner import Runner, config_line
from harness.adapters.git.submodules import Submodules
from harness.failures import Failure

# What a clone calls its origin: nothing that exists. A worker fetches through the gateway.
NO_ORIGIN = "file:///nonexistent/fetch-through-the-gateway"
# Names that agents and tools leave behind and that must never show up in `git status`.
OWN_NAMES = (".aider*", "__pycache__/", ".harness-run/")


class Clones:
    """Makes the folders. `borrow_as` is the path at which a container sees the mirror's objects, where that
    is another than ours; `instance` tells two directors on one machine apart."""

    def __init__(
        self,
        mirror: Mirror,
        runner: Runner,
        limits: GitLimits,
        author: tuple[str, str],
        *,
        borrow_as: str | None,
        instance: str,
    ) -> None:
        self._mirror = mirror
        self._git = runner
        self._limits = limits
        self._author = author
        self._borrow_as = borrow_as
        self._instance = instance
        self._submodules = Submodules(mirror, runner, limits)

    def clone(self, folder: Path, sha: str, branch: str, base: str) -> None:
        """`branch` checked out at `sha`, `refs/remotes/origin/<base>`, objects borrowed from the mirror."""
        branch, base = branch.removeprefix("refs/heads/"), base.removeprefix("refs/heads/")
        for name in (branch, base):
            checked_ref(f"refs/heads/{name}")
        wanted = {"kind": "clone", "sha": checked_sha(sha), "branch": branch, "base": base}
        if self._is_there(folder, wanted):
            heal_clone(folder)
            return
        tip = self._mirror.refs(f"refs/heads/{base}").get(f"refs/heads/{base}", "")
        if not tip:
            raise fail(Failure.CONFIG_INVALID, f"BASE_UNKNOWN: the forge has no branch {base}")
        self._mirror.tree(sha)
        self._begin(folder, wanted)
        refs = {f"refs/heads/{branch}": sha, f"refs/remotes/origin/{base}": tip}
        make_dot_git(folder / ".git", head=f"ref: refs/heads/{branch}", refs=refs, author=self._author)
        alternates = folder / ".git" / "objects" / "info" / "alternates"
        alternates.write_text(f"{self._mirror.objects}\n", encoding="utf-8")
        self._fill(folder, sha, trusted=tip)
        if self._borrow_as is not None:
            alternates.write_text(f"{self._borrow_as}\n", encoding="utf-8")
        self._end(folder, wanted)

    def checkout(self, folder: Path, sha: str) -> None:
        """A tree for a gate: detached at `sha`, shallow, with objects of its own, so that a container needs
        nothing else to call git in it."""
        wanted = {"kind": "checkout", "sha": checked_sha(sha)}
        if self._is_there(folder, wanted):
            return
        self._mirror.tree(sha)
        self._begin(folder, wanted)
        make_dot_git(folder / ".git", head=sha, refs={}, author=self._author)
        depth = f"--depth={self._limits.gate_depth}"
        args = (
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            depth,
            self._mirror.path.as_uri(),
            sha,
        )
        self._git.ok(
            *args, git_dir=folder / ".git", deadline_s=self._limits.clone_s, what=f"checking out {sha}"
        )
        self._fill(folder, sha, trusted=sha)
        self._end(folder, wanted)

    def _is_there(self, folder: Path, wanted: Mapping[str, object]) -> bool:
        """Whether exactly this was made before. Half of it is removed; anything else is a conflict."""
        owner = read_owner(folder)
        if owner is None:
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise fail(
                    Failure.INFRA_KILLED,
                    f"{folder} is in the way and not ours: it has no ownership file",
                )
            return False
        if owner.get("complete") is not True or not folder.is_dir():
            discard(folder)
            return False
        if any(owner.get(key) != value for key, value in wanted.items()):
            was = f"{owner.get('branch') or owner.get('kind')} at {owner.get('sha')}"
            raise fail(Failure.CONFLICT, f"{folder} holds {was}, not what is asked for: discard it first")
        return True

    def _begin(self, folder: Path, wanted: Mapping[str, object]) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_owner(folder, {**wanted, "attempt": folder.name, "instance": self._instance, "complete": False})
        folder.mkdir(exist_ok=True)

    def _end(self, folder: Path, wanted: Mapping[str, object]) -> None:
        write_owner(folder, {**wanted, "attempt": folder.name, "instance": self._instance, "complete": True})

    def _fill(self, folder: Path, sha: str, *, trusted: str) -> None:
        options = {"git_dir": folder / ".git", "work_tree": folder, "deadline_s": self._limits.clone_s}
        self._git.ok("read-tree", "--reset", "-u", sha, what=f"checking out {sha}", **options)
        self._submodules.fill(folder, folder / ".git", sha, trusted=trusted)


def make_dot_git(dot_git: Path, *, head: str, refs: Mapping[str, str], author: tuple[str, str]) -> None:
    """A repository without hooks, templates or remotes, written as files: nothing of the host is in it."""
    for part in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
        (dot_git / part).mkdir(parents=True, exist_ok=True)
    settings = (
        ("core.repositoryformatversion", "0"),
        ("core.bare", "false"),
        ("core.filemode", "true"),
        ("core.logAllRefUpdates", "true"),
        ("gc.auto", "0"),
        ("user.name", author[0]),
        ("user.email", author[1]),
        ("remote.origin.url", NO_ORIGIN),
        ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"),
    )
    (dot_git / "config").write_text("".join(config_line(k, v) for k, v in settings), encoding="utf-8")
    (dot_git / "info" / "exclude").write_text("\n".join(OWN_NAMES) + "\n", encoding="utf-8")
    packed = "".join(f"{sha} {ref}\n" for ref, sha in sorted(refs.items()))
    if packed:
        (dot_git / "packed-refs").write_text("# pack-refs with: sorted \n" + packed, encoding="utf-8")
    (dot_git / "HEAD").write_text(head + "\n", encoding="utf-8")
