#!/usr/bin/env bash
# Build the wheel and the sdist into dist/ (or the folder named), from a clean copy, with the locked build tools.
# Rule: the same commit gives the same wheel, byte for byte; what a former build left behind can not get in.
#
#   scripts/build.sh [FOLDER]
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

out=${1:-dist}
mkdir -p "$out"
rm -f "$out"/dev_harness-*
python -m build --no-isolation --outdir "$out" "$copy" >"$copy/build.log" 2>&1 || {
  cat "$copy/build.log" >&2
  exit 1
}
ls -1 "$out"/dev_harness-*
