"""The director's heap: what threads needed once is given back, whatever their number."""

from __future__ import annotations

import platform
import subprocess
import sys

from harness.compose import heap

# Twelve threads hold memory at the same time; glibc then says how many heaps there are.
SAY = """
import ctypes, sys, threading
from harness.compose import heap
if sys.argv[1] == "settled":
    assert heap.settle()
libc, together = ctypes.CDLL(None), threading.Barrier(13)
libc.fopen.restype = ctypes.c_void_p
def hold():
    kept = [bytes(1000 + n) for n in range(2000)]
    together.wait(60)
    together.wait(60)
for _ in range(12):
    threading.Thread(target=hold).start()
together.wait(60)
out = ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w"))
libc.malloc_info(0, out)
libc.fclose(out)
together.wait(60)
"""


def heaps(how: str) -> int:
    argv = [sys.executable, "-c", SAY, how]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.count("<heap nr=")


def test_threads_share_two_heaps() -> None:
    if platform.libc_ver()[0] != "glibc":
        assert not heap.settle()
        return
    assert heaps("settled") == 2
    assert heaps("as it is") > 2
