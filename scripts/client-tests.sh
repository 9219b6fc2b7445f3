#!/usr/bin/env bash
# Drive the embedded forge with two clients that we did not write: githubkit (strict models made from
# GitHub's own API description) and @octokit/rest. They are installed once, under .cache/, at exact versions.
set -euo pipefail

cd "$(dirname "$0")/.."
cache="$PWD/.cache/clients"
python="${PYTHON:-python3}"
pytest="${PYTEST:-.venv/bin/pytest}"
[ -x "$pytest" ] || pytest=pytest

# hishel: githubkit 0.16.1 allows 2.0.0, and fails to import with it.
githubkit="githubkit==0.16.1 GitHubKit-schemas==26.10.21 GitHubKit-schemas-2026-03-10==26.10.21 hishel==1.4.0"
octokit="@octokit/rest@22.0.0"

# install NAME SPEC COMMAND...: run COMMAND in a fresh folder unless the same SPEC is installed already
install() {
  name="$1"; spec="$2"; shift 2
  if [ "$(cat "$cache/$name/installed" 2>/dev/null || true)" = "$spec" ]; then return; fi
  rm -rf "${cache:?}/$name"
  mkdir -p "$cache/$name"
  (cd "$cache/$name" && "$@")
  printf '%s\n' "$spec" >"$cache/$name/installed"
}

install_githubkit() {
  "$python" -m venv venv
  # shellcheck disable=SC2086  # a list of requirements
  venv/bin/python -m pip install --quiet --disable-pip-version-check $githubkit
}

install_octokit() {
  npm install --silent --no-audit --no-fund --no-package-lock --prefix . "$octokit"
}

command -v npm >/dev/null || { echo "client-tests: npm is not on PATH: install Node 20 or newer" >&2; exit 2; }
install githubkit "$githubkit" install_githubkit
install octokit "$octokit" install_octokit

HARNESS_GITHUBKIT_PYTHON="$cache/githubkit/venv/bin/python" \
HARNESS_OCTOKIT_DIR="$cache/octokit" \
  exec "$pytest" -m clients tests/forge/test_clients.py "$@"
