"""The forge's credential: a token from a variable or a file, or a GitHub App's installation tokens.

The one rule: nothing keeps a token longer than it lives; an App's is renewed at 50 of its 60 minutes, once for
all who ask, and a new one is made at once when the forge refused the old.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from harness.config.models import Config
from harness.ports import Clock

LIFE_S = 3000.0
API = "https://api.github.com"


class AppTokens:
    """Installation tokens of one App for one repository. Raises OSError or github's own errors when none is given."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config, self._clock = config, clock
        self._lock = threading.Lock()
        self._token, self._made_at = "", float("-inf")

    def __call__(self) -> str:
        with self._lock:
            if self._clock.monotonic() - self._made_at > LIFE_S:
                self._make()
            return self._token

    def renew(self) -> str:
        """After a 401: another one, whatever the age of this."""
        with self._lock:
            self._make()
            return self._token

    def _make(self) -> None:
        from github import Auth, GithubIntegration

        forge = self._config.forge
        url = API if forge.url.rstrip("/") == "https://github.com" else forge.url
        auth = Auth.AppAuth(forge.app_id, forge.app_key.read())
        with GithubIntegration(auth=auth, base_url=url, retry=None) as app:
            owner, _, name = forge.repo.partition("/")
            installation = app.get_repo_installation(owner, name)
            self._token = app.get_access_token(installation.id).token
        self._made_at = self._clock.monotonic()


def token_source(
    config: Config, clock: Clock, env: Mapping[str, str]
) -> tuple[Callable[[], str], Callable[[], str]]:
    """Answers the token, and answers another one after a refusal."""
    if config.forge.app_id:
        app = AppTokens(config, clock)
        return app, app.renew

    def read() -> str:
        return config.forge.token.read(env)

    return read, read
