"""A seeded forge on loopback, and the real clients that tests drive it with."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import github
import httpx

from harness.forge import Forge, Issue, Settings, User, seed, serve

REPO = "acme/widgets"
USERS = (
    User("acme", token="t-owner", role="admin"),
    User("root", token="t-root", role="none", site_admin=True),
    User("maker", token="t-maker", role="write"),
    User("second", token="t-second", role="write"),
    User("reader", token="t-reader", role="read"),
    User("stranger", token="t-stranger", role="none"),
    User("robot[bot]", token="t-bot", role="write", kind="Bot"),
    User("checker[bot]", token="t-app", role="write", kind="Bot", app=True),
)


@dataclass
class Git:
    """A clone with an identity; every command is checked unless ``ok`` says otherwise."""

    path: Path
    env: dict[str, str] = field(default_factory=dict)

    def __call__(self, *args: str, ok: bool = True) -> subprocess.CompletedProcess[str]:
        env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.path.parent),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C.UTF-8",
            **self.env,
        }
        command = ["git", "-c", "user.name=maker", "-c", "user.email=maker@users.noreply.example", *args]
        done = subprocess.run(command, cwd=self.path, env=env, capture_output=True, text=True, timeout=120)
        if ok and done.returncode:
            raise AssertionError(f"{args} exited {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def write(self, name: str, content: str, message: str | None = None) -> str:
        """Commit one file on the current branch; gives the commit's SHA."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        self("add", "-A")
        self("commit", "-qm", message or f"Change {name}")
        return self("rev-parse", "HEAD").stdout.strip()

    def branch(self, name: str, start: str = "origin/main") -> None:
        self("fetch", "-q", "origin")
        self("checkout", "-q", "-B", name, start)


@dataclass
class World:
    """One running forge and ways to talk to it."""

    forge: Forge
    home: Path
    http: httpx.Client = field(default_factory=lambda: httpx.Client(verify=False, timeout=30))

    def api(
        self, method: str, path: str, body: Any = None, token: str | None = "t-maker", **headers: str
    ) -> httpx.Response:
        if token:
            headers["Authorization"] = f"Bearer {token}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        url = path if path.startswith("http") else self.forge.url + path
        return self.http.request(method, url, json=body, headers=named)

    def repo(self, method: str, path: str, body: Any = None, **more: Any) -> httpx.Response:
        return self.api(method, f"/repos/{REPO}{path}", body, **more)

    def github(self, token: str = "t-maker", prefix: str = "") -> github.Github:
        return github.Github(
            auth=github.Auth.Token(token),
            base_url=self.forge.url + prefix,
            retry=None,
            seconds_between_requests=None,
            seconds_between_writes=None,
        )

    def close(self) -> None:
        self.http.close()
        self.forge.close()

    def clone(self, token: str | None = "t-maker", name: str = "clone") -> Git:
        path = self.home / name
        path.mkdir()
        git = Git(path)
        git("clone", "-q", self.forge.clone_url(REPO, token), ".")
        return git

    def pull(self, git: Git, branch: str, files: dict[str, str], **more: Any) -> dict[str, Any]:
        """Push a branch with one commit a file and open a pull request for it."""
        git.branch(branch)
        for name, content in files.items():
            git.write(name, content)
        git("push", "-q", "origin", branch)
        body = {"title": f"Add {branch}", "head": branch, "base": "main", **more}
        answer = self.repo("POST", "/pulls", body)
        assert answer.status_code == 201, answer.text
        shape: dict[str, Any] = answer.json()
        return shape


def start(tmp_path: Path, settings: Settings | None = None) -> World:
    data = tmp_path / "data"
    files = {"README.md": "# Widgets\n", "src/app.py": "VALUE = 1\n", "run.sh": "#!/bin/sh\necho hi\n"}
    seed(
        data,
        repo=REPO,
        files=files,
        users=USERS,
        labels=["bug", ("harness:ready", "0e8a16", "May be worked on")],
        issues=[
            Issue("First", "The body", author="reader", labels=("bug",), comments=(("maker", "Seen"),)),
            Issue("Second", "Another", author="maker"),
        ],
    )
    return World(serve(data, settings=settings), tmp_path)
