"""Choice of the BLAS kernels, before numpy loads them."""

import os
import sys
from pathlib import Path

#: Processor flags that OpenBLAS's SkylakeX kernels need.
_AVX512 = frozenset({"avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl"})


def use_widest_kernels() -> bool:
    """Let OpenBLAS use its AVX-512 kernels on processors whose name it does not know.

    OpenBLAS picks kernels by processor model and takes AVX2 ones on AMD's AVX-512
    processors, at half the speed of a float32 product. Sets ``OPENBLAS_CORETYPE`` unless the
    caller's environment already has it, and returns whether it did; it has no effect once numpy
    is loaded.

    >>> import numpy
    >>> use_widest_kernels()  # too late: numpy is loaded
    False
    """
    if "numpy" in sys.modules or "OPENBLAS_CORETYPE" in os.environ:
        return False
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.startswith("flags")), "")
    if not set(flags.split()) >= _AVX512:
        return False
    os.environ["OPENBLAS_CORETYPE"] = "SkylakeX"
    return True
