"""The forge's world in one process: tables, bare repositories, clock and limits; and one call upon it.

Everything here is used under ``State.lock``: requests are served one after another, as GitHub's docs ask
clients to send them.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.forge.bare import Bare
from harness.forge.errors import ApiError, not_found
from harness.forge.faults import FaultPlan
from harness.forge.settings import Settings
from harness.forge.tables import Db

ROLES = ("none", "read", "triage", "write", "maintain", "admin")


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def weaker(one: str, two: str) -> str:
    return min(one, two, key=ROLES.index)


@dataclass
class State:
    """One data directory, open. ``clock`` gives seconds since the epoch; ``skew_s`` moves it for tests."""

    data_dir: Path
    settings: Settings = field(default_factory=Settings)
    faults: FaultPlan = field(default_factory=FaultPlan)
    clock: Callable[[], float] = time.time
    public_url: str = "http://127.0.0.1"
    skew_s: float = 0.0

    def __post_init__(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.db = Db(self.data_dir / "forge.db")
        self.lock = threading.RLock()

    def now(self) -> float:
        return self.clock() + self.skew_s

    def bare(self, repo: sqlite3.Row) -> Bare:
        return Bare(self.repo_path(repo["owner"], repo["name"]))

    def repo_path(self, owner: str, name: str) -> Path:
        return self.data_dir / "repos" / owner / f"{name}.git"

    def repo(self, owner: str, name: str) -> sqlite3.Row | None:
        return self.db.one("SELECT * FROM repos WHERE owner = ? AND name = ?", owner, name)

    def user(self, user_id: int) -> sqlite3.Row:
        return self.db.must("SELECT * FROM users WHERE id = ?", user_id)

    def role(self, repo: sqlite3.Row, who: Who | None) -> str:
        """What the caller may do here: the weaker of the person's role and the token's cap."""
        public = "none" if repo["private"] else "read"
        if who is None:
            return public
        if who.user["id"] == repo["owner_id"] or who.user["site_admin"]:
            own = "admin"
        else:
            sql = "SELECT role FROM collaborators WHERE repo_id = ? AND user_id = ?"
            row = self.db.one(sql, repo["id"], who.user["id"])
            own = row["role"] if row else public
        return weaker(own, who.cap)

    def close(self) -> None:
        with self.lock:
            self.db.close()


@dataclass(frozen=True)
class Who:
    """An authenticated caller: a person, and what the token adds or takes away."""

    user: sqlite3.Row
    cap: str
    kind: str
    scopes: str
    key: str
    expires_at: float | None = None


@dataclass
class Reply:
    """An answer before it becomes bytes. ``body`` of None is an empty one."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Call:
    """One REST request, parsed and authenticated. ``api`` and ``web`` are the bases of self links."""

    state: State
    method: str
    path: str
    params: Mapping[str, str]
    query: Mapping[str, str]
    body: dict[str, Any]
    who: Who | None
    api: str
    headers: Mapping[str, str]
    _repo: sqlite3.Row | None = None
    _role: str = "none"

    @property
    def web(self) -> str:
        return self.state.public_url

    @property
    def db(self) -> Db:
        return self.state.db

    @property
    def now(self) -> str:
        return iso(self.state.now())

    @property
    def user(self) -> sqlite3.Row:
        if self.who is None:
            raise ApiError(401, "Requires authentication")
        return self.who.user

    @property
    def user_id(self) -> int:
        return int(self.user["id"])

    @property
    def repo(self) -> sqlite3.Row:
        """The repository named in the path; 404 when it is not there or not to be seen."""
        if self._repo is None:
            repo = self.state.repo(self.params["owner"], self.params["repo"])
            if repo is None:
                raise not_found()
            self._role = self.state.role(repo, self.who)
            if self._role == "none":
                raise not_found()
            self._repo = repo
        return self._repo

    @property
    def repo_id(self) -> int:
        return int(self.repo["id"])

    @property
    def role(self) -> str:
        return self._role if self.repo is not None else "none"

    @property
    def bare(self) -> Bare:
        return self.state.bare(self.repo)

    @property
    def repo_api(self) -> str:
        return f"{self.api}/repos/{self.repo['owner']}/{self.repo['name']}"

    @property
    def repo_web(self) -> str:
        return f"{self.web}/{self.repo['owner']}/{self.repo['name']}"

    def may(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)

    def require(self, role: str) -> None:
        """Refuse (401 without a token, else 403) unless the caller has ``role`` here."""
        if self.may(role):
            return
        if self.who is None:
            raise ApiError(401, "Requires authentication")
        if self.who.kind == "app":
            raise ApiError(403, "Resource not accessible by integration")
        if self.who.cap != "admin":
            raise ApiError(403, "Resource not accessible by personal access token")
        raise ApiError(403, "Must have admin rights to Repository.")

    def number(self, name: str) -> int:
        text = self.params[name]
        if not text.isdigit() or len(text) > 15:
            raise not_found()
        return int(text)
