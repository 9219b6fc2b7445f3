#!/usr/bin/env bash
# Build the worker image and print its id as the last line.
# Rule: what goes in is fetched and verified on the host; the build itself has no network. Nothing changed
# since the last time means nothing is done.
#
#   scripts/build-image.sh                         harness-worker:dev on a small Debian base
#   scripts/build-image.sh --from node:20          on any image that has git and Python 3.11 to 3.13
#   scripts/build-image.sh --agent codex           harness-worker:codex, with that coding agent inside
#   scripts/build-image.sh --director              harness-director:dev, the director for docker/compose.yaml
#   --name NAME:TAG   another name       --air-gapped   do not even try a registry for the base
#   --base-only       stop when the base is there
#
# Where no registry can be reached the base is made with debootstrap (root only) from a Debian mirror;
# HARNESS_DEBIAN_MIRROR names another one than debootstrap's own.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$here"

base="" agent="" name="" director="" base_only="" air_gapped=${HARNESS_AIR_GAPPED:-}
while [ $# -gt 0 ]; do
  case $1 in
    --from | --agent | --name)
      if [ -z "${2:-}" ]; then
        echo "build-image: $1 needs a value; see the head of $0" >&2
        exit 2
      fi
      case $1 in --from) base=$2 ;; --agent) agent=$2 ;; --name) name=$2 ;; esac
      shift 2
      ;;
    --director) director=1 && shift ;;
    --base-only) base_only=1 && shift ;;
    --air-gapped) air_gapped=1 && shift ;;
    *)
      echo "build-image: unknown argument $1; known: --from --agent --name --director --base-only --air-gapped" >&2
      exit 2
      ;;
  esac
done
if [ -z "$name" ]; then
  name=harness-worker:${agent:-dev}
  [ -z "$director" ] || name=harness-director:dev
fi
if [ -n "$agent" ] && [ ! -f "docker/agents/$agent/package-lock.json" ]; then
  echo "build-image: no agent '$agent'; there is: $(ls docker/agents | tr '\n' ' ')" >&2
  exit 2
fi
if ! timeout 10 docker version >/dev/null 2>&1; then
  echo "build-image: no Docker engine answers; start one (root: scripts/engine.sh)" >&2
  exit 1
fi

say() { echo "build-image: $*" >&2; }
image_id() { docker image inspect --format '{{.Id}}' "$1" 2>/dev/null; }
label() { docker image inspect --format "{{index .Config.Labels \"$2\"}}" "$1" 2>/dev/null || true; }

work=$(mktemp -d "${TMPDIR:-/tmp}/harness-image.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The classic builder is in every engine; BuildKit would want a network for its frontends.
build() {
  if ! DOCKER_BUILDKIT=0 docker build --network none "$@" >"$work/build.log" 2>&1; then
    tail -n 30 "$work/build.log" >&2
    exit 1
  fi
}

# --- the base ---------------------------------------------------------------------------------------------
default_base=harness-base:bookworm

base_from_registry() {
  [ -z "$air_gapped" ] || return 1
  # A machine without a way out must not wait for it long.
  timeout 45 docker pull --quiet debian:bookworm-slim >/dev/null 2>&1 || return 1
  say "making $default_base from debian:bookworm-slim"
  DOCKER_BUILDKIT=0 docker build --quiet --tag "$default_base" - <docker/base.Dockerfile >/dev/null 2>"$work/base.log"
}

base_from_debootstrap() {
  PATH=$PATH:/usr/sbin:/sbin
  if ! command -v debootstrap >/dev/null || [ "$(id -u)" != 0 ]; then
    say "no base image: no registry can be reached, and making one needs root and debootstrap" \
      "(apt-get install debootstrap); or name an image that is here: --from IMAGE"
    return 1
  fi
  say "making $default_base with debootstrap, one to two minutes"
  # shellcheck disable=SC2086 # an empty mirror must be no argument
  if ! debootstrap --variant=minbase --include=git,python3,python3-venv,ca-certificates \
    bookworm "$work/root" ${HARNESS_DEBIAN_MIRROR:-} >"$work/base.log" 2>&1; then
    tail -n 5 "$work/base.log" >&2
    return 1
  fi
  rm -rf "$work"/root/var/cache/apt/archives/*.deb "$work"/root/var/lib/apt/lists/* \
    "$work"/root/usr/share/doc/* "$work"/root/usr/share/man/* "$work"/root/usr/share/locale/*
  tar -C "$work/root" -c . | docker import --change 'ENV LANG=C.UTF-8' - "$default_base" >/dev/null
  rm -rf "$work/root"
}

if [ -z "$base" ]; then
  base=$default_base
  if [ -z "$(image_id "$base")" ]; then
    base_from_registry || base_from_debootstrap || exit 1
  fi
elif [ -z "$(image_id "$base")" ]; then
  say "fetching $base"
  if ! docker pull --quiet "$base" >/dev/null; then
    say "no image $base here, and it can not be pulled; load it first: docker load -i FILE"
    exit 1
  fi
fi
if [ -n "$base_only" ]; then
  image_id "$base"
  exit 0
fi

# --- has anything changed? --------------------------------------------------------------------------------
base_id=$(image_id "$base")
sources_key=$({
  find harness -type f -not -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
  sha256sum pyproject.toml requirements/run.txt docker/*.Dockerfile "${BASH_SOURCE[0]}" \
    ${agent:+docker/agents/"$agent"/package-lock.json}
  echo "$base_id ${agent:-none} ${director:-worker}"
} | sha256sum | cut -c1-64)
if [ "$(label "$name" harness.build-key)" = "$sources_key" ]; then
  say "$name is up to date"
  image_id "$name"
  exit 0
fi

. "$here/scripts/setup.sh" build

# --- the agent --------------------------------------------------------------------------------------------
# Lay out docker/agents/NAME as $work/agent/files/NAME/{bin,tools}; npm checks the hashes of the lock.
agent_files() {
  local out=$work/agent/files/$agent machine npm_arch vendor
  machine=$(docker image inspect --format '{{.Architecture}}' "$base")
  case $machine in
    amd64) npm_arch=x64 ;;
    arm64) npm_arch=arm64 ;;
    *) say "no $agent for $machine" && return 1 ;;
  esac
  if ! command -v npm >/dev/null; then
    say "--agent $agent needs npm on this machine (only here: the image gets a native program)"
    return 1
  fi
  mkdir -p "$work/npm" "$out/bin" "$out/tools"
  cp "docker/agents/$agent/package.json" "docker/agents/$agent/package-lock.json" "$work/npm/"
  (cd "$work/npm" && npm ci --silent --ignore-scripts --no-audit --no-fund --os=linux --cpu="$npm_arch") >&2 || return
  case $agent in
    codex)
      vendor=$(echo "$work"/npm/node_modules/@openai/codex-linux-"$npm_arch"/vendor/*-linux-musl)
      mv "$vendor"/bin/* "$out/bin/" && mv "$vendor"/codex-path/* "$out/tools/"
      ;;
    *) say "no recipe for the files of $agent" && return 1 ;;
  esac
}

if [ -n "$agent" ]; then
  agent_key=$(cat "docker/agents/$agent/package-lock.json" docker/agent.Dockerfile <(echo "$base_id") | sha256sum | cut -c1-12)
  agent_base=harness-agent-$agent:$agent_key
  if [ -z "$(image_id "$agent_base")" ]; then
    version=$(sed -n 's/.*"@[^"]*": "\([0-9.]*\)".*/\1/p' "docker/agents/$agent/package.json")
    say "adding $agent $version"
    agent_files || exit 1
    build --tag "$agent_base" --build-arg BASE="$base" --build-arg AGENT="$agent" \
      --build-arg AGENT_VERSION="$version" --file docker/agent.Dockerfile "$work/agent"
    rm -rf "$work/agent" "$work/npm"
  fi
  base=$agent_base
fi

# --- what Python does the base have? ----------------------------------------------------------------------
# shellcheck disable=SC2016 # the image's shell expands it
probe='
for p in python3 python3.13 python3.12 python3.11; do
  command -v "$p" >/dev/null && "$p" -c "
import os, platform, sys
if not (3, 11) <= sys.version_info[:2] <= (3, 13): sys.exit(1)
import venv
try: libc = os.confstr(\"CS_GNU_LIBC_VERSION\").split()[1]
except Exception: libc = \"musl\"
print(sys.executable, \"%d.%d\" % sys.version_info[:2], platform.machine(), libc)" 2>/dev/null && break
done
command -v git >/dev/null && echo git'
probed=$(docker run --rm --network none --user 0:0 --entrypoint sh "$base" -c "$probe" 2>/dev/null || true)
read -r python python_version machine libc <<<"$(head -n 1 <<<"$probed")" || true
if [ -z "${libc:-}" ] || [ "$(tail -n 1 <<<"$probed")" != git ]; then
  say "$base needs git and Python 3.11, 3.12 or 3.13 (with its venv module); install them in that image first"
  exit 1
fi

# --- the libraries, verified against the lock, for that Python --------------------------------------------
platforms=()
if [ "$libc" = musl ]; then
  platforms=(--platform "musllinux_1_1_$machine" --platform "musllinux_1_2_$machine")
else
  for ((minor = ${libc#*.}; minor >= 5; minor--)); do platforms+=(--platform "manylinux_2_${minor}_$machine"); done
  platforms+=(--platform "manylinux2014_$machine" --platform "manylinux2010_$machine" --platform "manylinux1_$machine")
fi
libraries_key=$(sha256sum requirements/run.txt | cut -c1-16)-$python_version-$machine-$libc
libraries=.cache/image/$libraries_key
if [ ! -d "$libraries" ]; then
  say "fetching the libraries for Python $python_version on $machine, C library $libc"
  python -m pip install -qq --disable-pip-version-check --no-input --no-compile --no-deps --require-hashes \
    --only-binary :all: --implementation cp --python-version "$python_version" "${platforms[@]}" \
    --target "$work/libraries" --requirement requirements/run.txt >&2
  rm -rf "$work/libraries/bin" # commands that would start with this machine's Python
  mkdir -p .cache/image
  mv -T "$work/libraries" "$libraries" 2>/dev/null || [ -d "$libraries" ] # another build may have been first
fi

# --- the program itself, from a clean copy, and the image -------------------------------------------------
say "building $name"
mkdir -p "$work/source" "$work/context/program"
cp -R harness pyproject.toml "$work/source/"
[ ! -f README.md ] || cp README.md "$work/source/"
python -m pip install -qq --disable-pip-version-check --no-input --no-compile --no-deps --no-build-isolation \
  --no-index --target "$work/context/program" "$work/source" >&2
rm -rf "$work/context/program/bin"
cp -Rl "$libraries" "$work/context/libraries" 2>/dev/null || cp -R "$libraries" "$work/context/libraries"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml | head -n 1)

target=$name
[ -z "$director" ] || target=harness-worker:for-director
build --tag "$target" --build-arg BASE="$base" --build-arg PYTHON="$python" \
  --build-arg SITE="/opt/harness/lib/python$python_version/site-packages" \
  --build-arg BUILD_KEY="$sources_key" --build-arg VERSION="$version" \
  --file docker/worker.Dockerfile "$work/context"
if [ -n "$director" ]; then
  mkdir "$work/empty"
  build --tag "$name" --build-arg BASE="$target" --file docker/director.Dockerfile "$work/empty"
  docker image rm --no-prune "$target" >/dev/null
fi
image_id "$name"
