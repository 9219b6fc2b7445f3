"""The C library's heap, for a process of many threads that lives for months.

The one rule: it is told before the first thread starts, and where the C library is another than glibc nothing is
told. By default glibc gives threads heaps of their own (eight for each core), and after the first large block it
takes ever larger ones from them: what a thread needed once for an answer of the forge stays with it for good.
"""

from __future__ import annotations

import ctypes

# malloc.h: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD and M_ARENA_MAX. To set the first two ends their growth.
_SETTINGS = ((-3, 128 << 10), (-1, 128 << 10), (-8, 2))


def settle() -> bool:
    """Two heaps for all threads, and large blocks go back to the system at once. False: it was not glibc."""
    tell = getattr(ctypes.CDLL(None), "mallopt", None)
    if tell is None:
        return False
    told = [tell(name, value) == 1 for name, value in _SETTINGS]
    return all(told)
