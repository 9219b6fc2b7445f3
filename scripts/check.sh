#!/usr/bin/env bash
# Every static check, all of them even after the first that fails, and one line at the end.
# Rule: what CI checks is exactly this, so that green here is green there.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$here/scripts/setup.sh" run build test check
cd "$here" || exit 1

failed=()
run() {
  local name=$1
  shift
  if ! "$@"; then
    failed+=("$name")
  fi
}

# The files of the product: tracked or about to be. In an export without history, everything that is not made.
product_files() {
  # The checkout may belong to another user than the one who runs this, which git alone would refuse.
  if git -c safe.directory="$here" rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git -c safe.directory="$here" ls-files -z --cached --others --exclude-standard
  else
    find . -type f -not -path './.*/*' -not -path '*/__pycache__/*' -not -path './dist/*' -print0
  fi
}

# Patterns are written so that this file does not match them: a dot or a letter is in brackets.
named_nowhere() {
  local what=$1 pattern=$2 found
  found=$(product_files | xargs -0 grep -InE -- "$pattern" 2>/dev/null)
  if [ -n "$found" ]; then
    printf 'check: %s:\n%s\n' "$what" "$found" >&2
    return 1
  fi
}

scripts_parse() {
  local script bad=0
  for script in scripts/*.sh .ci/run; do
    bash -n "$script" || bad=1
  done
  return $bad
}

run "ruff check" ruff check --quiet .
run "ruff format" ruff format --check --quiet .
run "mypy" mypy --no-error-summary
run "import-linter" lint-imports --no-logo --cache-dir .cache/import-linter
run "shell syntax" scripts_parse
run "registry hosts" named_nowhere "a registry is named; a mirror must work as well" \
  '(pypi[.]org|pythonhosted[.]org|npmjs[.]org|deb[.]debian[.]org|registry-1[.]docker[.]io|index[.]docker[.]io)'
run "machine paths" named_nowhere "a path of somebody's machine" '/home/[a-z]+/(src|work|code)/'
run "left-overs" named_nowhere "unfinished work" '(#|//|<!--) *(TOD[O]|FIXM[E]|XX[X])\b'
run "secrets" named_nowhere "a private key" '^-----BEGIN [A-Z ]*PRIVATE KE[Y]'

if [ ${#failed[@]} -gt 0 ]; then
  printf -v list '%s, ' "${failed[@]}"
  echo "check: failed: ${list%, }" >&2
  exit 1
fi
echo "check: all passed"
