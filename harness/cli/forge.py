"""`harness forge`: serve or seed the embedded forge, for offline work and tests."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.common import Failed, emit, json_option

if TYPE_CHECKING:
    from harness.forge import User

ROLES = ("admin", "maintain", "write", "triage", "read", "none")
data_option = click.option(
    "--data",
    "data",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="Where it keeps everything.",
)


@click.group(help="The embedded GitHub-compatible forge.")
def command() -> None:
    pass


@command.command(help="Serve a forge on loopback until SIGTERM or ^C.")
@data_option
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 takes a free one."
)
@click.option(
    "--fault",
    "plan",
    type=click.Path(path_type=Path),
    default=None,
    metavar="PLAN",
    help="A JSON file of faults to play.",
)
def serve(data: Path, host: str, port: int, plan: Path | None) -> int:
    from harness.forge import main_serve

    if plan is not None and not plan.is_file():
        raise Failed(f"{plan} is not there: --fault names a plan of faults", 2)
    main_serve(data, host, port, plan, announce=lambda url: print(url, flush=True))
    print("harness forge: ended", file=sys.stderr)
    return 0


@command.command(help="Make a repository from a folder of files, people with tokens, labels and issues.")
@data_option
@click.option("--repo", default="acme/widget", show_default=True, metavar="OWNER/NAME")
@click.option(
    "--tree",
    type=click.Path(path_type=Path),
    default=None,
    metavar="DIR",
    help="The first commit's files (default: a README).",
)
@click.option(
    "--user",
    "people",
    multiple=True,
    metavar="LOGIN[:ROLE]",
    help="Somebody with a token (default: you:admin). Again for more.",
)
@click.option(
    "--issue", "titles", multiple=True, metavar="TITLE", help="An open issue with the label. Again for more."
)
@click.option("--label", default="harness", show_default=True, help="The label of those issues.")
@json_option
def seed(
    data: Path,
    repo: str,
    tree: Path | None,
    people: tuple[str, ...],
    titles: tuple[str, ...],
    label: str,
    as_json: bool,
) -> int:
    from harness.forge import Issue
    from harness.forge import seed as planting

    users = [_user(x) for x in people or ("you:admin",)]
    author = users[0].login
    files = None if tree else {"README.md": f"# {repo.rpartition('/')[2]}\n"}
    issues = tuple(Issue(t, "", author, (label,)) for t in titles)
    sha = planting(data, repo=repo, tree=tree, files=files, users=users, labels=(label,), issues=issues)
    tokens = {u.login: u.token for u in users}
    lines = [f"{repo} at {str(sha)[:12]} in {data}", *(f"token of {k}: {v}" for k, v in tokens.items())]
    emit(
        {"repo": repo, "sha": sha, "data": str(data), "tokens": tokens, "issues": len(issues)},
        as_json,
        "\n".join(lines),
    )
    return 0


def _user(text: str) -> User:
    from harness.forge import User

    login, _, role = text.partition(":")
    if role and role not in ROLES:
        raise Failed(f"--user {text}: the role is one of {', '.join(ROLES)}", 2)
    return User(login, secrets.token_hex(20), role or "write")
