"""Submodules of a working copy: fetched once into a store of ours, then copied in, shallow.

The one rule: only a submodule that the trusted base declares with the same address, at the forge itself, is
fetched. A branch that an agent wrote cannot make our credential read another repository.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import shutil
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from harness.adapters.git.changes import Diffs, text_of
from harness.adapters.git.content import Module, modules
from harness.adapters.git.errors import FailedError, classify, fail
from harness.adapters.git.limits import GitLimits
from harness.adapters.git.locks import RepositoryLock
from harness.adapters.git.mirror import Mirror, make_bare
from harness.adapters.git.runner import Runner, config_line
from harness.failures import Failure

_DEPTH = 4


class Submodules:
    def __init__(self, mirror: Mirror, runner: Runner, limits: GitLimits) -> None:
        self._mirror = mirror
        self._git = runner
        self._limits = limits
        self._store = mirror.path.with_name("modules")
        self._lock = RepositoryLock(mirror.path.with_name("modules.lock"))

    def fill(self, work_tree: Path, dot_git: Path, sha: str, *, trusted: str) -> None:
        """Check out the submodules of `sha`. Raises CONFIG_INVALID for one that cannot be had."""
        if not (work_tree / ".gitmodules").is_file() or (work_tree / ".gitmodules").is_symlink():
            return
        declared = {m.path: m for m in modules(self._git, self._mirror.path, sha)}
        known = {(m.path, m.url) for m in modules(self._git, self._mirror.path, trusted)}
        for path, commit in Diffs(self._git, self._mirror.path, self._limits).gitlinks(sha).items():
            module = declared.get(path)
            if module is None:
                continue
            if (path, module.url) not in known:
                raise _cannot(module, "it is new in this branch, and only a submodule of the base is fetched")
            self._place(work_tree, dot_git, module, commit, self._git.remote, 1)

    def _place(self, tree: Path, dot_git: Path, module: Module, commit: str, parent: str, depth: int) -> None:
        url = self._address(module, parent)
        kept = self._fetched(module, url, commit)
        target = _plain_folder(tree, module)
        own = dot_git / "modules" / _plain_name(module)
        shutil.copytree(kept, own, dirs_exist_ok=True)
        rel = os.path.relpath(own, target)
        settings = (("core.repositoryformatversion", "0"), ("core.bare", "false"), ("gc.auto", "0"),
                    ("core.worktree", os.path.relpath(target, own)))  # fmt: skip
        (own / "config").write_text("".join(config_line(k, v) for k, v in settings), encoding="utf-8")
        (own / "HEAD").write_text(commit + "\n", encoding="utf-8")
        (target / ".git").write_text(f"gitdir: {rel}\n", encoding="utf-8")
        options = {"git_dir": own, "work_tree": target, "deadline_s": self._limits.clone_s}
        self._git.ok(
            "read-tree", "--reset", "-u", commit, what=f"checking out submodule {module.name}", **options
        )
        with (dot_git / "config").open("a", encoding="utf-8") as f:
            f.write(config_line(f"submodule.{module.name}.active", "true"))
            f.write(config_line(f"submodule.{module.name}.url", url))
        inner = Diffs(self._git, own, self._limits).gitlinks(commit)
        if inner and depth >= _DEPTH:
            raise _cannot(module, f"submodules are nested deeper than {_DEPTH}")
        for child in modules(self._git, own, commit) if inner else ():
            if child.path in inner:
                self._place(target, own, child, inner[child.path], url, depth + 1)

    def _address(self, module: Module, parent: str) -> str:
        """The full address, which must be at the forge itself."""
        url = module.url
        if url.startswith(("./", "../")):
            parts = urlsplit(parent)
            url = urlunsplit(parts._replace(path=posixpath.normpath(posixpath.join(parts.path, url))))
        elif url.startswith("/"):
            url = Path(url).as_uri()
        here, there = urlsplit(self._git.remote), urlsplit(url)
        if (here.scheme, here.netloc) != (there.scheme, there.netloc):
            raise _cannot(
                module, f"{url} is not at {here.scheme}://{here.netloc}, the forge of this repository"
            )
        return url

    def _fetched(self, module: Module, url: str, commit: str) -> Path:
        """A bare, shallow repository of ours with just that commit."""
        key = hashlib.sha256(f"{url} {commit}".encode()).hexdigest()[:24]
        kept = self._store / f"{key}.git"
        with self._lock.hold(self._limits.lock_s + self._limits.fetch_s):
            if (kept / "complete").exists():
                return kept
            shutil.rmtree(kept, ignore_errors=True)
            self._store.mkdir(parents=True, exist_ok=True)
            make_bare(self._git, kept)
            args = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--depth=1", url, commit)
            ran = self._git.net(*args, git_dir=kept, deadline_s=self._limits.fetch_s, url=url)
            if ran.code != 0:
                err = classify(ran, what=f"fetching submodule {module.name} from {url}")
                if err.failure in (
                    Failure.FORGE_DOWN,
                    Failure.TIMEOUT,
                    Failure.DISK_FULL,
                    Failure.INFRA_KILLED,
                ):
                    raise FailedError(err)
                raise _cannot(module, err.detail)
            (kept / "complete").write_text("", encoding="utf-8")
        return kept


def _plain_folder(tree: Path, module: Module) -> Path:
    """The submodule's folder, every part of it a real folder: CVE-2024-32002 went through a link here."""
    folder = tree
    for part in module.path.split(b"/"):
        bad = part.lower() in (b"", b".", b"..", b".git") or any(c < 0x20 or c == 0x7F for c in part)
        folder = folder / os.fsdecode(part)
        if bad or folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise _cannot(module, "its path is not a plain folder")
        folder.mkdir(exist_ok=True)
    if any(folder.iterdir()):
        raise _cannot(module, "its folder is not empty")
    return folder


def _plain_name(module: Module) -> str:
    parts = module.name.split("/")
    if (
        any(p.lower() in ("", ".", "..", ".git") or p.startswith("-") for p in parts)
        or not module.name.isprintable()
    ):
        raise _cannot(module, "its name is not a plain one")
    return module.name


def _cannot(module: Module, why: str) -> FailedError:
    text = f"submodule {text_of(module.path)} ({module.url}) cannot be had: {why}"
    return fail(Failure.CONFIG_INVALID, text)
