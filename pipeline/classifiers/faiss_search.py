"""The one door to FAISS: exact nearest neighbours by squared L2, on checked arrays, in one thread.

FAISS has two ways: a direct kernel that sums squared differences, and |x|^2 + |y|^2 - 2xy by its BLAS, which
loses digits on data far from the origin and with them the order of near ties. Callers centre the data and
settle near ties in float64, so the faster one may serve: the direct kernel for few supports, else the BLAS.
Tried, two neighbours of 75 queries of 640 dimensions, microseconds of one core per episode with 5 and with 25
supports (NumPy's product of the same shapes: 35 and 67):

    knn_L2sqr, direct kernel                          45   178
    knn_L2sqr, its BLAS                               60    88
    knn_L2sqr_by_idx, supports not gathered           46   199
    pairwise_L2sqr, which leaves the search to us     44    70
    faiss.knn, the Python function, the better way    49    98
    an IndexFlatL2 for each episode, likewise         65   122
    one for 20 episodes, searched by IDSelectorRange 106   186

With 21,168 dimensions knn_L2sqr takes 1.6 and 6.5 ms directly, 2.1 and 3.1 ms by BLAS.
"""

from collections.abc import Iterator

import faiss
import numpy as np

from fsnl.cache.arrays import F32, I64, Bool

# Up to so many supports the direct kernel is faster than the BLAS.
DIRECT_SUPPORTS = 10
# FAISS compares queries (or queries times dimensions, by version) with its threshold.
_ALWAYS_DIRECT = np.iinfo(np.int32).max
_ALWAYS_BLAS = 1


def use_one_thread() -> None:
    """Keep FAISS to one thread in the calling thread; the setting does not reach threads started later."""
    faiss.omp_set_num_threads(1)


def nearest(support: F32, query: F32, *, n_neighbours: int) -> tuple[F32, I64]:
    """Nearest supports of each query, episode by episode.

    Args:
        support: (B, m, D) float32, C-contiguous.
        query: (B, n, D) likewise.
        n_neighbours: 1..m.

    Returns:
        Squared distances (B, n, n_neighbours) float32, ascending, and positions 0..m-1 likewise, int64; where
        a distance is not finite the position is -1. The order of near ties is FAISS's.

    Raises:
        ValueError: shapes, dtypes or order do not fit.
    """
    _check(support, query, n_neighbours=n_neighbours)
    n_block, m, dim = support.shape
    n = query.shape[1]
    distances = np.empty((n_block, n, n_neighbours), np.float32)
    positions = np.empty((n_block, n, n_neighbours), np.int64)
    # One setting for the process: another thread may change it, which costs time and no digit that matters.
    faiss.cvar.distance_compute_blas_threshold = _ALWAYS_DIRECT if m <= DIRECT_SUPPORTS else _ALWAYS_BLAS
    # Addresses, episode after episode: faiss.swig_ptr on slices would take as long as a small search.
    floats, integers = faiss.cast_integer_to_float_ptr, faiss.cast_integer_to_idx_t_ptr
    xs, ys, ds, ps = (_addresses(array) for array in (query, support, distances, positions))
    for x, y, d, p in zip(xs, ys, ds, ps, strict=True):
        faiss.knn_L2sqr(floats(x), floats(y), dim, n, m, n_neighbours, floats(d), integers(p))
    return distances, positions


def _addresses(array: F32 | I64) -> range:
    """Where each episode of a C-contiguous array starts."""
    first, step = array.ctypes.data, array.strides[0]
    return range(first, first + len(array) * step, step)


def _check(support: F32, query: F32, *, n_neighbours: int) -> None:
    for name, array in (("support", support), ("query", query)):
        if array.ndim != 3 or array.dtype != np.float32 or not array.flags.c_contiguous:
            shape = f"{array.dtype} {array.shape}"
            msg = f"{name} must be a C-contiguous float32 array of three dimensions, is {shape}"
            raise ValueError(msg)
    if support.shape[2] != query.shape[2]:
        msg = f"support has {support.shape[2]} dimensions, query {query.shape[2]}"
        raise ValueError(msg)
    if len(support) != len(query):
        msg = f"support has {len(support)} episodes, query {len(query)}"
        raise ValueError(msg)
    if not 1 <= n_neighbours <= support.shape[1]:
        msg = f"n_neighbours is {n_neighbours}, needed 1 to {support.shape[1]}"
        raise ValueError(msg)


def pairs_by_cosine(
    directions: F32, *, threshold: float, block: int = 1024
) -> Iterator[tuple[float, int, int]]:
    """Every two rows whose inner product is at least `threshold`, each pair once, in the order of rows.

    Args:
        directions: (N, D) float32, C-contiguous, finite; rows of norm 1, or 0, which are in no pair.
        threshold: of the cosine.
        block: rows that are searched for at a time.

    Yields:
        Cosine, row, and a higher row.
    """
    somewhere: Bool = np.asarray(directions.any(axis=1))
    # FAISS keeps what is above its threshold, not what is equal to it.
    above = float(np.nextafter(np.float32(threshold), np.float32(-2)))
    for first in range(0, len(directions), block):
        later = faiss.IndexFlatIP(directions.shape[1])
        later.add(directions[first:])
        limits, products, rows = later.range_search(directions[first : first + block], above)
        for i in range(len(limits) - 1):
            found = slice(int(limits[i]), int(limits[i + 1]))
            others, cosines = first + rows[found], products[found]
            for j in np.argsort(others):
                if others[j] > first + i and somewhere[others[j]] and somewhere[first + i]:
                    yield float(cosines[j]), first + i, int(others[j])
