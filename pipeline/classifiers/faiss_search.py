"""The one door to FAISS: exact nearest neighbours by squared L2, on checked arrays, in one thread.

The search comes in the two halves that FAISS's own knn has: all distances, and its heaps, which keep the
nearest. So the distances are computed once for all who search: several classifiers, and several numbers of
shots whose supports nest. They come by one of two ways:

* |x|^2 + |y|^2 - 2xy by FAISS's BLAS, of gathered rows. That formula loses digits on data far from the origin
  and with them the order of near ties: callers centre the data and settle near ties in float64.
* The sum of (x - y)^2 by its kernel for listed rows, of queries that lie where they are: with few supports,
  reading a query once for each of them takes less time than gathering it first.

Tried, two neighbours of 75 queries of 640 dimensions, microseconds of one core per episode with 5 and with 25
supports (a core with AVX2; NumPy's product of the same shapes: 35 and 61):

    pairwise_L2sqr                                    45    74
    the heaps, all episodes of a block in one call     3    11
    knn_L2sqr, its direct kernel                      46   172
    knn_L2sqr, its BLAS                               48    94
    knn_L2sqr_by_idx, supports not gathered           46   199
    faiss.knn, the Python function, the better way    49    98
    an IndexFlatL2 for each episode, likewise         65   122
    one for 20 episodes, searched by IDSelectorRange 106   186

and on a core with AVX-512, what gathering costs beside them (NumPy's product: 7 and 58):

    gathering the queries and supports                17    19
    pairwise_L2sqr                                    28    48
    fvec_L2sqr_by_idx, queries not gathered           32   116
    the heaps                                          2     9
"""

from collections.abc import Iterator

import faiss
import numpy as np

from fsnl.cache.arrays import F32, I64, Bool


def use_one_thread() -> None:
    """Keep FAISS to one thread in the calling thread; the setting does not reach threads started later."""
    faiss.omp_set_num_threads(1)


def squared_distances(support: F32, query: F32) -> F32:
    """Squared L2 distances of each query to the supports of its episode.

    Args:
        support: (B, m, D) float32, C-contiguous.
        query: (B, n, D) likewise.

    Returns:
        (B, n, m) float32; rounding may make the least ones negative.

    Raises:
        ValueError: shapes, dtypes or order do not fit.
    """
    _check({"support": support, "query": query}, n_axes=(3, 3))
    if len(support) != len(query):
        msg = f"support has {len(support)} episodes, query {len(query)}"
        raise ValueError(msg)
    n_block, m, dim = support.shape
    n = query.shape[1]
    distances = np.empty((n_block, n, m), np.float32)
    # Addresses, episode after episode: faiss.swig_ptr on slices would take as long as a small search.
    pointer = faiss.cast_integer_to_float_ptr
    for x, y, d in zip(*(_addresses(array) for array in (query, support, distances)), strict=True):
        faiss.pairwise_L2sqr(dim, n, pointer(x), m, pointer(y), pointer(d))
    return distances


def squared_distances_to_rows(support: F32, embeddings: F32, query_rows: I64) -> F32:
    """The same with the queries left where they are, summed from differences.

    Args:
        support: (B, m, D) float32, C-contiguous.
        embeddings: (N, D) likewise.
        query_rows: (B, n) int64, rows of the embeddings.

    Returns:
        (B, n, m) float32.

    Raises:
        ValueError: shapes, dtypes or order do not fit, or a row is not there.
    """
    _check({"support": support, "embeddings": embeddings}, n_axes=(3, 2))
    n_block, m, dim = support.shape
    if len(query_rows) != n_block:
        msg = f"support has {n_block} episodes, query_rows {len(query_rows)}"
        raise ValueError(msg)
    if query_rows.size and not 0 <= query_rows.min() <= query_rows.max() < len(embeddings):
        reach = f"{query_rows.min()} to {query_rows.max()}"
        msg = f"query_rows are {reach}, the embeddings have rows 0 to {len(embeddings) - 1}"
        raise ValueError(msg)
    n = query_rows.shape[1]
    rows = np.ascontiguousarray(np.broadcast_to(query_rows[:, None], (n_block, m, n)), dtype=np.int64)
    distances = np.empty((n_block, m, n), np.float32)
    given = (faiss.swig_ptr(array) for array in (distances, support, embeddings, rows))
    faiss.fvec_L2sqr_by_idx(*given, dim, n_block * m, n)  # type: ignore[attr-defined]  # not in its stubs
    by_query: F32 = distances.swapaxes(1, 2)
    return by_query


def nearest(distances: F32, *, n_neighbours: int) -> tuple[F32, I64]:
    """The nearest of each query.

    Args:
        distances: (B, n, m) float32, from `squared_distances`.
        n_neighbours: 1..m.

    Returns:
        Distances (B, n, n_neighbours) float32, ascending, and positions 0..m-1 likewise, int64; where a
        distance is not finite the position is -1. The order of near ties is FAISS's.

    Raises:
        ValueError: more neighbours than there are.
    """
    n_block, n, m = distances.shape
    if not 1 <= n_neighbours <= m:
        msg = f"n_neighbours is {n_neighbours}, needed 1 to {m}"
        raise ValueError(msg)
    given = np.ascontiguousarray(distances, dtype=np.float32)
    least = np.empty((n_block, n, n_neighbours), np.float32)
    positions = np.empty((n_block, n, n_neighbours), np.int64)
    heaps = faiss.float_maxheap_array_t()
    heaps.nh, heaps.k = n_block * n, n_neighbours
    heaps.val, heaps.ids = faiss.swig_ptr(least), faiss.swig_ptr(positions)
    heaps.heapify()
    heaps.addn(m, faiss.swig_ptr(given))
    heaps.reorder()
    return least, positions


def _addresses(array: F32) -> range:
    """Where each episode of a C-contiguous array starts."""
    first, step = array.ctypes.data, array.strides[0]
    return range(first, first + len(array) * step, step)


def _check(arrays: dict[str, F32], *, n_axes: tuple[int, int]) -> None:
    for (name, array), n in zip(arrays.items(), n_axes, strict=True):
        if array.ndim != n or array.dtype != np.float32 or not array.flags.c_contiguous:
            shape = f"{array.dtype} {array.shape}"
            msg = f"{name} must be a C-contiguous float32 array of {n} axes, is {shape}"
            raise ValueError(msg)
    (first, one), (second, other) = ((name, array.shape[-1]) for name, array in arrays.items())
    if one != other:
        msg = f"{first} has {one} dimensions, {second} {other}"
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
