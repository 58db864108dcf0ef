"""Pillow's warnings, kept from the user while images are decoded in any number of threads."""

import contextlib
import threading
import warnings
from typing import Any, cast

# Pillow warns at its own lines, so the module of a warning is PIL.something. The empty group makes this
# filter unlike any that a user may have set.
_MODULE = r"PIL\.()"

_lock = threading.Lock()
_n_inside = 0
_installed: object = None


class _Quiet:
    """The block; it has no state of its own, and is no generator, for it is entered for every image."""

    def __enter__(self) -> None:
        global _n_inside, _installed
        with _lock:
            _n_inside += 1
            if _n_inside == 1:
                warnings.filterwarnings("ignore", module=_MODULE)
                _installed = warnings.filters[0]

    def __exit__(self, *raised: object) -> None:
        global _n_inside
        with _lock:
            _n_inside -= 1
            if _n_inside == 0:
                with contextlib.suppress(ValueError):  # somebody's catch_warnings took it away already
                    cast("list[Any]", warnings.filters).remove(_installed)


_QUIET = _Quiet()


def pillow_quiet() -> _Quiet:
    """Ignore what Pillow warns of (broken EXIF, odd TIFF tags, very large images) inside a `with` block.

    `warnings.catch_warnings` exchanges the filters of the whole process and is not for threads: two
    blocks that overlap can leave their filters behind. Here the first thread in adds one filter, and
    the last one out takes that filter away again; nobody else's filters are touched.
    """
    return _QUIET
