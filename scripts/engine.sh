#!/usr/bin/env bash
# See to it that a Docker engine answers on this machine, and say in one line what was done.
# Rule: an engine that answers is left alone; only CI calls this, no other script installs or starts one.
set -euo pipefail

log=${HARNESS_ENGINE_LOG:-${TMPDIR:-/tmp}/harness-dockerd.log}
wait_s=60

engine_version() {
  timeout 10 docker version --format '{{.Server.Version}}' 2>/dev/null
}

if version=$(engine_version); then
  echo "engine: Docker $version answers already"
  exit 0
fi
if [ -n "${DOCKER_HOST:-}" ]; then
  echo "engine: nothing answers at DOCKER_HOST=$DOCKER_HOST; start that engine or unset DOCKER_HOST" >&2
  exit 1
fi
if [ "$(id -u)" != 0 ]; then
  echo "engine: no Docker engine answers and only root can start one; start it, or run this as root" >&2
  exit 1
fi

PATH=$PATH:/usr/sbin:/sbin
did=started
if ! command -v dockerd >/dev/null || ! command -v docker >/dev/null || ! command -v iptables >/dev/null; then
  if ! command -v apt-get >/dev/null; then
    echo "engine: no dockerd here and no apt-get to install it with; install a Docker engine" >&2
    exit 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq >>"$log" 2>&1 || true # a dead third-party list must not matter; the install decides
  if ! apt-get install -y -qq --no-install-recommends docker.io iptables >>"$log" 2>&1; then
    echo "engine: apt-get could not install docker.io; see $log" >&2
    exit 1
  fi
  did="installed and started"
fi

# The daemon must outlive this script and hold none of its files, or a caller's pipe would never close.
# Descriptors above 2 are closed too: a caller may hold a lock on one.
start_daemon() {
  setsid nohup bash -c '
    for fd in /proc/self/fd/*; do fd=${fd##*/}; [ "$fd" -le 2 ] || eval "exec $fd>&-" 2>/dev/null; done
    exec dockerd "$@"' dockerd "$@" </dev/null >>"$log" 2>&1 &
  daemon_pid=$!
}

wait_for_daemon() {
  local waited
  for ((waited = 0; waited < wait_s * 2; waited++)); do
    if version=$(engine_version); then
      return 0
    fi
    # Gone already: a longer wait would not help.
    kill -0 "$daemon_pid" 2>/dev/null || return 1
    sleep 0.5
  done
  return 1
}

if [ -d /run/systemd/system ]; then
  systemctl start docker >>"$log" 2>&1 || true
  daemon_pid=$$ # ours lives: wait the whole time
  if wait_for_daemon; then
    echo "engine: $did Docker $version (systemd)"
    exit 0
  fi
  echo "engine: systemd could not start docker; see: journalctl -u docker" >&2
  exit 1
fi

# Machines differ in what their kernel lets a daemon do. Workers have no network, so an engine without
# a bridge is good enough; one without overlay is slow but right.
for flags in "" "--iptables=false --ip6tables=false" "--iptables=false --bridge=none" \
  "--iptables=false --bridge=none --storage-driver=vfs"; do
  # A pid file of a dead daemon would stop a new one where its number is in use again.
  if [ -f /var/run/docker.pid ] && ! grep -qs dockerd "/proc/$(cat /var/run/docker.pid)/comm"; then
    rm -f /var/run/docker.pid
  fi
  # shellcheck disable=SC2086 # the flags are words
  start_daemon $flags
  if wait_for_daemon; then
    echo "engine: $did Docker $version (pid $daemon_pid${flags:+, $flags}, log $log)"
    exit 0
  fi
  kill "$daemon_pid" 2>/dev/null && wait "$daemon_pid" 2>/dev/null || true
done
echo "engine: dockerd does not come up; its last words, from $log:" >&2
tail -n 5 "$log" >&2
exit 1
