"""A block of episodes in the cache: gathered once, and what several classifiers need computed once."""

from collections.abc import Callable, Iterable
from typing import Generic, Literal, TypeAlias, TypeVar

import numpy as np

from fsnl.cache.arrays import F32, F64, I64
from fsnl.pipeline.classifiers.rows import Rows
from fsnl.pipeline.classifiers.similarity import UNIT, product_error

Shared: TypeAlias = Literal[
    "cosines", "distances", "prototype_products", "centred_prototype_products", "centred"
]


T = TypeVar("T")


class _once(Generic[T]):
    """A property that is computed when first asked for, and kept: `functools.cached_property` of Python 3.12.

    Before, that holds one lock for all instances while it computes, so that one thread at a time would.
    """

    def __init__(self, compute: Callable[["Block"], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, block: "Block", owner: type["Block"]) -> T:
        value = block.__dict__[self._compute.__name__] = self._compute(block)
        return value


class Buffers:
    """A worker's arrays, filled anew for every block: a fresh allocation would cost more than the gather.

    Args:
        n_block: episodes per block.
        n_way, n_shot, n_queries, dim: W, K, n = W * Q and D.
        centred: whether centred copies are needed beside the rows as they are.
    """

    def __init__(
        self, n_block: int, *, n_way: int, n_shot: int, n_queries: int, dim: int, centred: bool
    ) -> None:
        self.support = np.empty((n_block, n_way, n_shot, dim), np.float32)
        self.query = np.empty((n_block, n_queries, dim), np.float32)
        self.centred_support = np.empty_like(self.support) if centred else self.support
        self.centred_query = np.empty_like(self.query) if centred else self.query


class Block:
    """Embeddings of some episodes, and the quantities that classifiers share, computed when first asked for.

    Arrays of supports against queries lie support by support, (B, W, K, n) and (B, W, n), so that sums and
    maxima over the shots run along whole rows of queries.

    Args:
        rows: the split.
        support_rows: (B, W, K) int64.
        query_rows: (B, n) int64.
        buffers: where to gather to.
        search: a block to the squared distances (B, n, m) of its queries and supports.
        queries_needed: gather the queries too, which some searches do without.
        from_products: take prototype products from those of the supports, which somebody asks for anyway.
        from_distances: take the products of the supports from the distances, likewise.
        parent: a block with the same queries whose first shots these are.
    """

    def __init__(
        self,
        rows: Rows,
        support_rows: I64,
        query_rows: I64,
        buffers: Buffers,
        *,
        search: Callable[["Block"], F32],
        queries_needed: bool,
        from_products: bool,
        from_distances: bool,
        parent: "Block | None" = None,
    ) -> None:
        self.rows = rows
        self.support_rows = support_rows
        self.query_rows = query_rows
        self._buffers = buffers
        self._search = search
        self._queries_needed = queries_needed
        self._from_products = from_products
        self._from_distances = from_distances
        self._parent = parent
        n_block, self.n_way, self.n_shot = support_rows.shape
        self.support: F32 = buffers.support[:n_block, :, : self.n_shot]
        self.query: F32 = buffers.query[:n_block]
        if parent is None:
            both = ((support_rows, self.support), (query_rows, self.query))
            for wanted, array in both if queries_needed else both[:1]:
                np.take(rows.embeddings, wanted, axis=0, out=array, mode="clip")
                if rows.scale != 1.0:
                    array *= np.float32(rows.scale)

    @property
    def dim(self) -> int:
        """D."""
        return int(self.rows.embeddings.shape[1])

    def originals(self) -> tuple[F32, F32]:
        """Support (B, W, K, D) and query (B, n, D) as they came, not to be written to."""
        support, query = self.support, self.query
        if self.rows.scale != 1.0:
            support = self.rows.embeddings[self.support_rows]
            query = self.rows.embeddings[self.query_rows]
        views = support.view(), query.view()
        for view in views:
            view.flags.writeable = False
        return views

    def first_shots(self, n_shot: int) -> "Block":
        """The same episodes with the first shots only; shares what this one has."""
        if n_shot == self.n_shot:
            return self
        return Block(
            self.rows,
            self.support_rows[:, :, :n_shot],
            self.query_rows,
            self._buffers,
            search=self._search,
            queries_needed=self._queries_needed,
            from_products=self._from_products,
            from_distances=self._from_distances,
            parent=self,
        )

    def prime(self, shared: Iterable[Shared]) -> None:
        """Compute these quantities now."""
        for name in shared:
            getattr(self, name)

    @_once
    def centred(self) -> tuple[F32, F32]:
        """Support (B, W, K, D) and query (B, n, D), the centre taken off where the split has one."""
        n_block = len(self.query)
        support = self._buffers.centred_support[:n_block, :, : self.n_shot]
        query = self._buffers.centred_query[:n_block]
        if self._parent is not None:
            support = self._parent.centred[0][:, :, : self.n_shot]
        elif self.rows.centre is not None:
            np.subtract(self.support, self.rows.centre, out=support)
            np.subtract(self.query, self.rows.centre, out=query)
        return support, query

    @_once
    def distances(self) -> F32:
        """(B, n, W, K), squared L2 of the centred queries and supports."""
        if self._parent is not None:
            return self._parent.distances[..., : self.n_shot]
        found = self._search(self)
        return found.reshape(*found.shape[:2], *self.support.shape[1:3])

    @_once
    def query_squares(self) -> F32:
        """(B, n), squared norm of the centred queries."""
        return self.rows.centred_squares[self.query_rows]

    @_once
    def largest_support_square(self) -> F32:
        """(B, 1), the largest squared norm of the centred supports."""
        squares: F32 = self.rows.centred_squares[self.support_rows]
        return np.asarray(squares.max(axis=(1, 2)))[:, None]

    @_once
    def products(self) -> F32:
        """(B, W, K, n), inner products as the rows lie."""
        product: F32
        if self._parent is not None:
            return self._parent.products[:, :, : self.n_shot]
        if self._from_distances:  # the search has multiplied already: |x|^2 + |y|^2 - 2xy
            squares = self.rows.squares
            product = squares[self.support_rows][..., None] + squares[self.query_rows][:, None, None]
            product -= self.distances.transpose(0, 2, 3, 1)
            product *= np.float32(0.5)
            return product
        flat = self.support.reshape(len(self.support), -1, self.dim)
        product = np.matmul(flat, self.query.swapaxes(1, 2))
        return product.reshape(*self.support.shape[:3], -1)

    @property
    def product_rounding(self) -> float:
        """Bound on the rounding of all products here, relative to |x| |y|.

        Those from distances take over the rounding of squared norms, in FAISS and here, and of three
        additions, all relative to |x|^2 + |y|^2.
        """
        error = product_error(self.dim)
        ratio = self.rows.square_ratio
        return error + UNIT + ratio * (error + 5 * UNIT) if self._from_distances else error

    @_once
    def inverse_query_norms(self) -> F32:
        """(B, n)."""
        inverse: F32 = self.rows.inverse_norms[self.query_rows]
        return inverse

    @_once
    def cosines(self) -> F32:
        """(B, W, K, n); NaN where float32 cannot tell."""
        if self._parent is not None:
            return self._parent.cosines[:, :, : self.n_shot]
        cosine: F32 = self.products * self.rows.inverse_norms[self.support_rows][..., None]
        cosine *= self.inverse_query_norms[:, None, None]
        return cosine

    @_once
    def prototypes(self) -> F32:
        """(B, W, D), means of the supports as they lie."""
        return _mean_over_shots(self.support)

    @_once
    def centred_prototypes(self) -> F32:
        """(B, W, D), means of the centred supports."""
        return self.prototypes if self.rows.centre is None else _mean_over_shots(self.centred[0])

    @_once
    def prototype_products(self) -> F32:
        """(B, W, n), inner products of prototypes and queries as they lie."""
        if self._from_products:
            return _mean_over_shots(self.products)
        product: F32 = np.matmul(self.prototypes, self.query.swapaxes(1, 2))
        return product

    @_once
    def centred_prototype_products(self) -> F32:
        """(B, W, n), the same of the centred ones."""
        if self.rows.centre is None:
            return self.prototype_products
        product: F32 = np.matmul(self.centred_prototypes, self.centred[1].swapaxes(1, 2))
        return product

    @_once
    def precise_support(self) -> F64:
        """(B, W, K, D) float64, neither scaled nor centred."""
        return self.rows.embeddings[self.support_rows].astype(np.float64)


def _mean_over_shots(array: F32) -> F32:
    """Over axis 2; shot by shot, which is faster than NumPy's own for few shots."""
    mean: F32 = array[:, :, 0].copy()
    for shot in range(1, array.shape[2]):
        mean += array[:, :, shot]
    mean /= array.shape[2]
    return mean
