#!/usr/bin/env bash
# Make .venv hold exactly what the hashed lock files say, and this package in editable form.
# Rule: nothing is installed whose hash is not in requirements/; a second call finds its stamps and does nothing.
#
#   scripts/setup.sh                  everything: run, build, test, check
#   scripts/setup.sh run              only what the program needs
#   . scripts/setup.sh run            the same, and puts .venv/bin first in PATH of the calling script
#
# PYTHON=/path/to/python picks the interpreter (3.11, 3.12 or 3.13).

harness_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
      command -v "$candidate"
      return 0
    fi
  done
  echo "setup: no Python 3.11, 3.12 or 3.13 found; install one, or name it: PYTHON=/path/to/python $0" >&2
  return 2
}

harness_venv_make() {
  local python
  python=$(harness_python) || return
  echo "setup: making .venv with $python" >&2
  if ! "$python" -m venv .venv; then
    echo "setup: $python cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2
    rm -rf .venv
    return 2
  fi
}

# Print "GROUP FINGERPRINT" for a group; an environment's own version is part of it.
harness_fingerprint() {
  cat "requirements/$1.txt" .venv/pyvenv.cfg | sha256sum | cut -d' ' -f1
}

harness_setup() {
  local group mark files=() missing=()
  [ -x .venv/bin/python ] || harness_venv_make || return
  mkdir -p .venv/stamps
  for group in "$@"; do
    if [ ! -f "requirements/$group.txt" ]; then
      echo "setup: no requirements/$group.txt; the groups are run, build, test and check" >&2
      return 2
    fi
    mark=$(harness_fingerprint "$group")
    if [ "$(cat ".venv/stamps/$group" 2>/dev/null)" != "$mark" ]; then
      missing+=("$group=$mark")
      files+=(--requirement "requirements/$group.txt")
    fi
  done
  if [ ${#missing[@]} -gt 0 ]; then
    echo "setup: installing ${missing[*]%%=*}" >&2
    .venv/bin/python -m pip install -qq --disable-pip-version-check --no-input \
      --require-hashes --only-binary :all: "${files[@]}" >&2 || return
    for group in "${missing[@]}"; do
      echo "${group#*=}" >".venv/stamps/${group%%=*}"
    done
  fi
  # The editable install only writes a pointer and the command; it changes when pyproject.toml does.
  mark="$PWD $(sha256sum <pyproject.toml)"
  if [ "$(cat .venv/stamps/package 2>/dev/null)" != "$mark" ] || [ ! -x .venv/bin/harness ]; then
    .venv/bin/python -m pip install -qq --disable-pip-version-check --no-input \
      --no-deps --no-build-isolation --editable . >&2 || return
    echo "$mark" >.venv/stamps/package
  fi
}

harness_setup_locked() {
  cd "$(dirname "${BASH_SOURCE[0]}")/.." || return
  # Two scripts started together must not install into one environment at the same time.
  mkdir -p .cache || return
  if command -v flock >/dev/null; then
    exec 9>.cache/setup.lock || return
    flock 9 || return
  fi
  # setuptools, which makes the editable install, is in the group "build".
  case " $* " in
    "  ") harness_setup run build test check ;;
    *" build "*) harness_setup "$@" ;;
    *) harness_setup build "$@" ;;
  esac
}

(harness_setup_locked "$@") || exit
PATH="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.venv/bin:$PATH"
export PATH
