"""The one door to FAISS: exact nearest neighbours by squared L2, on checked arrays, in one thread."""

import faiss
import numpy as np

from fsnl.cache.arrays import F32, I64

# Above this many products FAISS would use |x|^2 + |y|^2 - 2xy, which loses digits on data far from the
# origin and with them the order of ties: never.
_ALWAYS_DIRECT = np.iinfo(np.int32).max


def use_one_thread() -> None:
    """Keep FAISS to one thread in the calling thread; the setting does not reach threads started later."""
    faiss.omp_set_num_threads(1)
    faiss.cvar.distance_compute_blas_threshold = _ALWAYS_DIRECT


def nearest(support: F32, query: F32, *, n_neighbours: int) -> tuple[F32, I64]:
    """Nearest rows of `support` for each row of `query`; equal distances go to the lower row.

    Args:
        support: (m, D) float32, C-contiguous, finite.
        query: (n, D) likewise.
        n_neighbours: 1..m.

    Returns:
        Squared distances (n, n_neighbours) float32, ascending, and rows (n, n_neighbours) int64.

    Raises:
        ValueError: shapes, dtypes or order do not fit, or a distance is not finite.
    """
    for name, array in (("support", support), ("query", query)):
        if array.ndim != 2 or array.dtype != np.float32 or not array.flags.c_contiguous:
            shape = f"{array.dtype} {array.shape}"
            msg = f"{name} must be a C-contiguous float32 matrix, is {shape}"
            raise ValueError(msg)
    if support.shape[1] != query.shape[1]:
        msg = f"support has {support.shape[1]} dimensions, query {query.shape[1]}"
        raise ValueError(msg)
    if not 1 <= n_neighbours <= len(support):
        msg = f"n_neighbours is {n_neighbours}, needed 1 to {len(support)}"
        raise ValueError(msg)
    distances, rows = faiss.knn(query, support, n_neighbours)
    if rows.min(initial=0) < 0:  # what FAISS answers for NaN
        msg = "embeddings hold values that are not finite"
        raise ValueError(msg)
    return distances, rows
