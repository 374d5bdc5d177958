"""A process of many short threads keeps two heaps, not one for each thread."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, sys, threading
from eris.cli.networking.allocator import keep_few_arenas
if sys.argv[1] == "few":
    assert keep_few_arenas()
barrier = threading.Barrier(12)
def work():
    kept = [bytes(1000) for _ in range(1000)]
    barrier.wait()
    barrier.wait()
threads = [threading.Thread(target=work) for _ in range(11)]
for thread in threads: thread.start()
barrier.wait()
ctypes.CDLL(None).malloc_info(0, ctypes.c_void_p.in_dll(ctypes.CDLL(None), "stdout"))
ctypes.CDLL(None).fflush(None)
barrier.wait()
"""


def heaps(how: str) -> int:
    command = [sys.executable, "-c", PROGRAM, how]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.count("<heap nr=")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc gives threads heaps of their own")
def test_threads_share_two_heaps() -> None:
    assert heaps("few") <= 2
    assert heaps("any") > 2
