#!/usr/bin/env bash
# Run the demo from a checkout: make the environment, build the worker image when an engine answers, go.
# Rule: stdout is the demo's alone, so that `scripts/demo.sh --json` prints one document.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$here/scripts/setup.sh" run

case " $* " in
  *" --runtime process "* | *" --runtime=process "* | *" --help "*) ;;
  *)
    if command -v docker >/dev/null && timeout 10 docker version >/dev/null 2>&1; then
      "$here/scripts/build-image.sh" >&2 ||
        echo "demo: no worker image, see above; the demo runs its workers as processes where it may choose" >&2
    fi
    ;;
esac
exec harness demo "$@"
