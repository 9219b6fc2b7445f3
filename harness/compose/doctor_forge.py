"""The doctor at the forge: what the credential is and may do, and what the repository's rules ask for.

The one rule: it only reads, with the credential that the director will use.
"""

from __future__ import annotations

import base64
import re
import shutil
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from harness.adapters.git.repo import LFS
from harness.adapters.github import GitHubForge
from harness.adapters.github.calls import Calls
from harness.adapters.github.forge import PUBLIC_API
from harness.adapters.github.wire import Wire
from harness.adapters.governor import Governor
from harness.compose.credentials import token_source
from harness.compose.findings import CONNECT_S, OK, PROBLEM, WARNING, Check, why
from harness.compose.fitness import prefixes
from harness.compose.parts import budgets
from harness.config.errors import ConfigError
from harness.config.models import Config
from harness.core.result import Ok
from harness.domain import Account, Repository
from harness.loop import SteadyClock

WRITERS = frozenset({"write", "maintain", "admin"})
WIDE = re.compile(r"^(workflow|delete_repo|site_admin|user|(admin|write|delete):.*)$")


def forge(config: Config, clock: SteadyClock, env: Mapping[str, str]) -> Iterator[Check]:
    token, renew = token_source(config, clock, env)
    try:
        token()
    except ConfigError as e:
        yield Check("credential", PROBLEM, str(e), "set it where the director starts")
        return
    except (OSError, _app_errors()) as e:
        text = f"App {config.forge.app_id} has no token for {config.forge.repo}: {e}"
        yield Check(
            "credential",
            PROBLEM,
            text,
            "look at forge.app_id, forge.key_file, and where the App is installed",
        )
        return
    governor = Governor(lambda key: None, lambda key, value: None, clock, budgets(config), 2)
    url = PUBLIC_API if config.forge.url == "https://github.com" else config.forge.url
    hub = GitHubForge(url, config.forge.repo, token, governor, clock, timeout_s=CONNECT_S * 2, renew=renew)
    who = hub.whoami()
    if not isinstance(who, Ok):
        yield Check(
            "credential", PROBLEM, f"{url}: {why(who)}", "look at forge.url, the token and the network"
        )
        return
    yield from scopes(who.value)
    found = hub.repository()
    if not isinstance(found, Ok):
        yield Check("repository", PROBLEM, why(found), "look at forge.repo, and whether the token may see it")
        return
    yield from permission(config, found.value)
    calls = Calls(Wire(url, CONNECT_S * 2), governor, clock, token)
    yield from protection(config, calls, found.value.default_branch)
    yield from names_in_the_way(config, calls)
    yield from large_files(config, calls)


def _app_errors() -> type[Exception]:
    from github import GithubException

    return GithubException


def scopes(who: Account) -> Iterator[Check]:
    name = who.login or "an App's installation"
    wide = [s for s in who.scopes if WIDE.match(s)]
    if wide:
        text = f"{name}, with more than is needed: {', '.join(wide)}"
        yield Check(
            "credential",
            WARNING,
            text,
            "use a token with only: contents, issues, pull requests, statuses (write)",
        )
    elif who.scopes and not {"repo", "public_repo"} & set(who.scopes):
        text = f"{name}, whose scopes ({', '.join(who.scopes)}) do not reach repositories"
        yield Check(
            "credential", PROBLEM, text, "give the token the scope repo, or public_repo for a public one"
        )
    else:
        told = f"scopes {', '.join(who.scopes)}" if who.scopes else "the forge tells no scopes of it"
        yield Check("credential", OK, f"{name}, {told}")


def permission(config: Config, found: Repository) -> Iterator[Check]:
    repo = config.forge.repo
    if found.permission not in WRITERS:
        text = f"{repo}: the credential has {found.permission}, and needs write"
        yield Check("repository", PROBLEM, text, "give its account the role Write")
    elif found.permission == "admin":
        yield Check(
            "repository", WARNING, f"{repo}: the credential is admin there", "the role Write is enough"
        )
    else:
        yield Check("repository", OK, f"{repo}: {found.permission}, default branch {found.default_branch}")
    method = config.release.merge_method
    if method not in found.merge_methods:
        allowed = ", ".join(found.merge_methods)
        level = PROBLEM if config.release.merge == "auto" else WARNING
        text = f"release.merge_method is {method}, {repo} allows only {allowed}"
        yield Check("merging", level, text, f'set release.merge_method = "{found.merge_methods[0]}"')


def names_in_the_way(config: Config, calls: Calls) -> Iterator[Check]:
    """Branches named like a folder that ours shall be in."""
    for prefix in prefixes(config):
        parts = prefix.split("/")
        for taken in ("/".join(parts[: i + 1]) for i in range(len(parts))):
            asked = calls.ask("GET", f"/repos/{config.forge.repo}/branches/{quote(taken, safe='')}")
            # The forge follows the name of a branch that was renamed; then the answer is another branch's.
            if isinstance(asked, Ok) and asked.value.status == 200 and asked.value.json()["name"] == taken:
                text = f"branch {taken} is there, so git can have no branches {prefix}/…"
                yield Check(
                    "branches", PROBLEM, text, "rename it, or set forge.branch_prefix or release.branch"
                )


def large_files(config: Config, calls: Calls) -> Iterator[Check]:
    if shutil.which("git-lfs") is not None:
        return
    asked = calls.ask("GET", f"/repos/{config.forge.repo}/contents/.gitattributes")
    if not isinstance(asked, Ok) or asked.value.status != 200:
        return
    told = asked.value.json()
    text = base64.b64decode(str(told.get("content", ""))) if isinstance(told, dict) else b""
    if LFS.search(text):
        yield Check("lfs", PROBLEM, ".gitattributes asks for Git LFS", "install git-lfs on this machine")


def protection(config: Config, calls: Calls, branch: str) -> Iterator[Check]:
    path = f"/repos/{config.forge.repo}/branches/{quote(branch, safe='')}"
    asked = calls.ask("GET", path)
    if not isinstance(asked, Ok):
        yield Check("protection", PROBLEM, f"{branch}: {why(asked)}")
        return
    if asked.value.status != 200:
        what = (
            "is not there: the repository is empty"
            if asked.value.status == 404
            else f"answers {asked.value.status}"
        )
        yield Check("protection", PROBLEM, f"branch {branch} {what}", "push a first commit")
        return
    if not asked.value.json().get("protected"):
        text = f"{branch} is not protected: whoever has write may push to it"
        yield Check("protection", OK, text)
        return
    rules = calls.ask("GET", f"{path}/protection")
    told = rules.value.json() if isinstance(rules, Ok) and rules.value.status == 200 else None
    yield _protected(config, branch, told)


def _protected(config: Config, branch: str, told: Mapping[str, Any] | None) -> Check:
    if told is None:
        do = 'release.merge = "person" is safe with any rule' if config.release.merge == "auto" else ""
        level = WARNING if do else OK
        return Check(
            "protection", level, f"{branch} is protected; its rules cannot be read with this credential", do
        )
    reviews = int(
        (told.get("required_pull_request_reviews") or {}).get("required_approving_review_count") or 0
    )
    contexts = (told.get("required_status_checks") or {}).get("contexts") or []
    rules = [f"{reviews} approving review{'' if reviews == 1 else 's'}"] if reviews else []
    rules += [f"checks {', '.join(contexts)}"] if contexts else []
    text = f"{branch} is protected" + (f": {'; '.join(rules)}" if rules else "")
    if (told.get("lock_branch") or {}).get("enabled"):
        return Check("protection", PROBLEM, f"{branch} is locked: nobody can merge into it", "unlock it")
    if reviews and config.release.merge == "auto":
        do = 'approve each release\'s pull, or set release.merge = "person"'
        return Check("protection", WARNING, f"{text}; release.merge is auto", do)
    return Check("protection", OK, text)
