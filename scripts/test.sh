#!/usr/bin/env bash
# Run the tests. Arguments go to pytest, and pytest's closing line is the last one printed.
# Rule: with HARNESS_REQUIRE_DOCKER=1 a missing engine or image is a failure; without, those tests say why they skip.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$here/scripts/setup.sh" run build test check
cd "$here"

if command -v docker >/dev/null && timeout 10 docker version >/dev/null 2>&1; then
  # Cached: this only builds when the program changed.
  if ! scripts/build-image.sh >&2; then
    [ -z "${HARNESS_REQUIRE_DOCKER:-}" ] || exit 1
    echo "test: no worker image, see above; tests that need it will fail" >&2
  fi
elif [ -n "${HARNESS_REQUIRE_DOCKER:-}" ]; then
  echo "test: HARNESS_REQUIRE_DOCKER is set and no Docker engine answers; start one (root: scripts/engine.sh)" >&2
  exit 1
fi
exec python -m pytest "$@" </dev/null
