#!/usr/bin/env bash
# What takes too long for every change: the long tests, many simulated nights, mutations, the crash matrix, git that
# is killed and started all at once, and an engine that restarts, is upgraded, hangs or is gone.
# Rule: every part runs, also after one that failed; the exit code says whether all passed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bad=0
scripts/test.sh -m nightly || bad=1
. .venv/bin/activate
harness sim --seeds "${HARNESS_SEEDS:-0:100000}" --faults all || bad=1
python scripts/mutations.py || bad=1
python scripts/crash-matrix.py --no-table || bad=1
python scripts/crash-matrix.py --who worker --no-table || bad=1
python benchmarks/git_weather.py || bad=1
if docker version >/dev/null 2>&1 && scripts/build-image.sh; then
  python scripts/crash-matrix.py --docker harness-worker:dev --no-table || bad=1
  python scripts/crash-matrix.py --docker harness-worker:dev --who worker --no-table || bad=1
else
  echo "nightly: no crashes in containers: they need an engine and the worker image" >&2
fi
if [ "$(id -u)" = 0 ] && command -v dockerd >/dev/null; then
  python benchmarks/engine_nights.py || bad=1
else
  echo "nightly: no nights of the engine: they need root and dockerd" >&2
fi
exit $bad
