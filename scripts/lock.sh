#!/usr/bin/env bash
# Write requirements/*.txt anew from pyproject.toml: every version pinned, every file hashed, for all
# supported Pythons and both architectures at once. Rule: a lock names no host, so a mirror works as well.
#
#   scripts/lock.sh             keep the pinned versions that still fit
#   scripts/lock.sh --upgrade   take the newest of everything
set -euo pipefail
cd "$(dirname "$0")/.."

tools=.cache/lock-tools
if [ ! -x "$tools/bin/uv" ]; then
  echo "lock: installing the resolver into $tools" >&2
  "${PYTHON:-python3}" -m venv "$tools"
  "$tools/bin/pip" install --quiet --disable-pip-version-check "uv>=0.9,<1"
fi

# run.txt comes first and constrains the others, so that one environment can hold all four.
compile() {
  local out=$1
  shift
  "$tools/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-emit-find-links --custom-compile-command "scripts/lock.sh" \
    --output-file "requirements/$out" "$@"
}
compile run.txt "$@" pyproject.toml
compile test.txt "$@" --constraint requirements/run.txt --extra test pyproject.toml
compile check.txt "$@" --constraint requirements/test.txt --extra check pyproject.toml
compile build.txt "$@" --constraint requirements/check.txt requirements/build.in
grep -c '==' requirements/*.txt
