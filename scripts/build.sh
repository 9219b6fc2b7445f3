#!/usr/bin/env bash
# Build the wheel and the sdist into dist/, from a clean copy and with the locked build tools.
# Rule: the same commit gives the same bytes; what a former build left behind can not get in.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$here/scripts/setup.sh" build
cd "$here"

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c safe.directory="$here" log -1 --format=%ct 2>/dev/null || echo 315532800)}
export SOURCE_DATE_EPOCH
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
for part in harness pyproject.toml README.md LICENSE CHANGELOG.md MANIFEST.in; do
  [ ! -e "$part" ] || cp -R "$part" "$copy/"
done
find "$copy" -name __pycache__ -prune -exec rm -rf {} +

mkdir -p dist
rm -f dist/dev_harness-*
python -m build --no-isolation --outdir dist "$copy" >"$copy/build.log" 2>&1 || {
  cat "$copy/build.log" >&2
  exit 1
}
ls -1 dist/dev_harness-*
