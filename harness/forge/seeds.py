"""Fill a forge: people with tokens, a repository from a directory, labels, issues and comments.

It works on the data directory, before a server starts or while one runs.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.forge import comments, sync
from harness.forge import labels as label_rows
from harness.forge.bare import ZERO, Bare, Person, valid_ref
from harness.forge.errors import ForgeError
from harness.forge.issues import new_row
from harness.forge.repos import SETTINGS
from harness.forge.state import ROLES, Call, State, Who, hash_token, iso

Label = str | tuple[str, str, str]


@dataclass(frozen=True)
class User:
    """A person or bot. ``role`` is theirs in the seeded repository; ``cap`` bounds their token.

    ``kind`` is "User" or "Bot"; ``app`` makes the token a GitHub App's (check runs, no `/user`).
    """

    login: str
    token: str | None = None
    role: str = "write"
    kind: str = "User"
    cap: str = "admin"
    site_admin: bool = False
    app: bool = False
    email: str | None = None
    name: str | None = None
    scopes: str = "repo"
    expires_at: float | None = None


@dataclass(frozen=True)
class Issue:
    """An issue to create; ``comments`` are (login, body), ``author`` defaults to the repository's owner."""

    title: str
    body: str = ""
    author: str | None = None
    labels: tuple[str, ...] = ()
    comments: tuple[tuple[str, str], ...] = ()


def seed(
    data_dir: Path,
    *,
    repo: str | None = None,
    tree: Path | None = None,
    files: Mapping[str, str | bytes] | None = None,
    users: Iterable[User] = (),
    labels: Iterable[Label] = (),
    issues: Iterable[Issue] = (),
    default_branch: str = "main",
    private: bool = False,
    settings: Mapping[str, bool] | None = None,
    message: str = "Initial commit",
    at: float | None = None,
) -> str | None:
    """Create people and, when ``repo`` ("owner/name") is given, that repository; gives its first commit.

    Content comes from the directory ``tree`` (its .gitignore is heeded) or from ``files``. The owner is made
    if they are not among ``users``. A repository that exists already is a ForgeError; people are updated.
    """
    state = State(Path(data_dir))
    try:
        people = list(users)
        if repo is None:
            with state.db.transaction():
                for user in people:
                    _person(state, user)
            return None
        owner, _, name = repo.partition("/")
        if not owner or not name or "/" in name or not valid_ref(name):
            raise ForgeError(f"repository {repo!r} is not of the form owner/name")
        if state.repo(owner, name) is not None:
            raise ForgeError(f"repository {repo} exists in {data_dir} already")
        if owner.lower() not in {user.login.lower() for user in people}:
            people.insert(0, User(owner, role="admin"))
        path = state.repo_path(owner, name)
        if path.exists():
            shutil.rmtree(path)  # an earlier seeding was killed before its rows were written
        bare = Bare.create(path, default_branch)
        moment = time.time() if at is None else at
        sha = _first_commit(bare, tree, files or {}, default_branch, message, owner, moment)
        with state.db.transaction():
            ids = {user.login.lower(): _person(state, user) for user in people}
            repo_id = _repo(state, owner, name, ids[owner.lower()], default_branch, private, settings or {})
            for user in people:
                if user.login.lower() != owner.lower() and user.role != "none":
                    sql = "INSERT OR REPLACE INTO collaborators VALUES (?,?,?)"
                    state.db.run(sql, repo_id, ids[user.login.lower()], user.role)
            _content(state, owner, name, labels, issues)
        return sha
    finally:
        state.close()


def _person(state: State, user: User) -> int:
    if user.role not in ROLES or user.cap not in ROLES:
        raise ForgeError(f"user {user.login}: role and cap must be one of {', '.join(ROLES)}")
    email = user.email or f"{user.login.removesuffix('[bot]')}@users.noreply.example"
    state.db.run(
        "INSERT INTO users (login, name, email, type, site_admin, created_at) VALUES (?,?,?,?,?,?) "
        "ON CONFLICT (login) DO UPDATE SET name = excluded.name, email = excluded.email, "
        "type = excluded.type, site_admin = excluded.site_admin",
        user.login,
        user.name or user.login,
        email,
        user.kind,
        int(user.site_admin),
        iso(state.now()),
    )
    person = int(state.db.must("SELECT id FROM users WHERE login = ?", user.login)["id"])
    if user.token is not None:
        state.db.run(
            "INSERT OR REPLACE INTO tokens (hash, user_id, cap, kind, scopes, expires_at) "
            "VALUES (?,?,?,?,?,?)",
            hash_token(user.token),
            person,
            user.cap,
            "app" if user.app else "pat",
            user.scopes,
            user.expires_at,
        )
    return person


def _repo(
    state: State,
    owner: str,
    name: str,
    owner_id: int,
    branch: str,
    private: bool,
    settings: Mapping[str, bool],
) -> int:
    now = iso(state.now())
    unknown = sorted(set(settings) - set(SETTINGS))
    if unknown:
        raise ForgeError(f"unknown repository settings {', '.join(unknown)}: known are {', '.join(SETTINGS)}")
    repo_id = state.db.insert(
        "repos",
        owner_id=owner_id,
        owner=owner,
        name=name,
        private=int(private),
        default_branch=branch,
        created_at=now,
        updated_at=now,
        pushed_at=now,
    )
    for key, value in settings.items():
        state.db.run(f"UPDATE repos SET {key} = ? WHERE id = ?", int(value), repo_id)
    return repo_id


def _first_commit(
    bare: Bare,
    tree: Path | None,
    files: Mapping[str, str | bytes],
    branch: str,
    message: str,
    owner: str,
    at: float,
) -> str:
    index = {"GIT_INDEX_FILE": str(bare.path / "index.seed")}
    if tree is not None:
        if not Path(tree).is_dir():
            raise ForgeError(f"{tree} is not a directory to seed from")
        bare.raw(
            f"--work-tree={Path(tree).resolve()}", "add", "-A", ".", env={**index, "GIT_DIR": str(bare.path)}
        )
    for path, content in files.items():
        raw = content.encode() if isinstance(content, str) else content
        blob = bare.text("hash-object", "-w", "--stdin", stdin=raw).strip()
        mode = "100755" if raw.startswith(b"#!") else "100644"
        bare.raw("update-index", "--add", "--cacheinfo", f"{mode},{blob},{path}", env=index)
    root = bare.text("write-tree", env=index).strip()
    (bare.path / "index.seed").unlink(missing_ok=True)
    author = Person(owner, f"{owner}@users.noreply.example", int(at))
    sha = bare.commit_tree(root, (), message + "\n", author, author)
    bare.set_ref(f"refs/heads/{branch}", sha, ZERO)
    return sha


def _content(state: State, owner: str, name: str, wanted: Iterable[Label], issues: Iterable[Issue]) -> None:
    """Labels, issues and comments, through the same functions that requests use."""

    def call_as(login: str) -> Call:
        user = state.db.one("SELECT * FROM users WHERE login = ?", login)
        if user is None:
            raise ForgeError(f"user {login!r} is not among the users to seed")
        who = Who(user, "admin", "pat", "repo", "seed")
        params: dict[str, str] = {"owner": owner, "repo": name}
        body: dict[str, Any] = {}
        return Call(state, "POST", "/", params, {}, body, who, "http://seed", {})

    root = call_as(owner)
    sync.reconcile(root)
    for item in wanted:
        text, color, description = (item, label_rows.DEFAULT_COLOR, "") if isinstance(item, str) else item
        if label_rows.by_name(root, text) is None:
            label_rows.insert(root, text, color, description or None)
    for issue in issues:
        row = new_row(call_as(issue.author or owner), issue.title, issue.body, is_pull=False)
        label_rows.attach(root, row["id"], list(issue.labels))
        for login, body in issue.comments:
            comments.add(call_as(login), row["id"], body)
