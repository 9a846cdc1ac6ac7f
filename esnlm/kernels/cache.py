"""Compiled kernels, cached in the user's cache folder or in ``NUMBA_CACHE_DIR``.

A cache beside the sources would outlive them: pip leaves what it did not install, and a folder
``esnlm`` that it leaves hides the next install.
"""

import hashlib
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import numba
import platformdirs
from numba.core import caching

config: Any = numba.config


def hash_sources(folder: Path) -> str:
    """Hash the modules of a folder, with what else decides their compiled code."""
    digest = hashlib.sha256(f"{numba.__version__} {config.BOUNDSCHECK}".encode())
    for path in sorted(folder.glob("*.py")):
        source = path.read_bytes()
        digest.update(f"{path.name} {len(source)} ".encode() + source)
    return digest.hexdigest()[:16]


def cache_folder() -> Path | None:
    """Return the folder of these kernels, which need not exist; None where the user has no home."""
    root = os.path.abspath(Path(config.CACHE_DIR, "esnlm")) if config.CACHE_DIR else ""
    if not root:
        with suppress(RuntimeError):
            root = platformdirs.user_cache_dir("esnlm")
    if not os.path.isabs(root):  # older versions of platformdirs return "~/.cache/esnlm"
        return None
    return Path(root, "kernels", hash_sources(Path(__file__).parent))


FOLDER = cache_folder()


class _Locator(caching._CacheLocator):
    """Location of every kernel; no stamp, as the name of the folder stands for the sources."""

    _py_file = __file__

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> "_Locator":
        return cls()

    def get_cache_path(self) -> str:
        return str(FOLDER)

    def get_source_stamp(self) -> str:
        return ""

    def get_disambiguator(self) -> str:
        return "kernel"


class _Implementation(caching.CompileResultCacheImpl):
    _locator_classes: Any = (_Locator,)


class KernelCache(caching.FunctionCache):
    """Cache of a kernel, empty where its files cannot be read or written, or are damaged."""

    _impl_class = _Implementation

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        # numba counts the files of an index: two processes would give one name to two signatures.
        file: Any = self._cache_file
        file._data_name = lambda number: f"{self._impl.filename_base}.{uuid4().hex}.nbc"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load the kernel of a signature, or return None where that is impossible."""
        try:
            return super().load_overload(sig, target_context)
        except OSError:
            return None
        except Exception:  # pickle's: a power cut or a full disk leaves files that are cut
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save the kernel of a signature, unless its files cannot be read or written."""
        with suppress(Exception):
            super().save_overload(sig, data)


def kernel(function: Any = None, **options: Any) -> Any:
    """Compile a function at its first call, or load it from the cache; it releases the GIL."""
    if function is None:
        return partial(kernel, **options)
    dispatcher = numba.njit(nogil=True, **options)(function)
    if FOLDER:
        dispatcher._cache = KernelCache(function)
    return dispatcher
