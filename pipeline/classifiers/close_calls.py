"""Close calls: queries whose best two classes lie within the rounding of float32, scored again in float64."""

import numpy as np

from fsnl.cache.arrays import F32, I64, Bool, Unsigned
from fsnl.cache.schema import Episodes
from fsnl.pipeline.classifiers.base import Classifier, decide_with_ties

# Supports and queries in one go, in values. A call for each episode took longer than what it computed.
CHUNK_VALUES = 1 << 20


class CloseCalls:
    """Those of one classifier on some of the episodes of a set, put off until there are many of them."""

    def __init__(self) -> None:
        self._episodes: list[I64] = []
        self._close: list[Bool] = []

    def put_off(self, first: int, close: Bool) -> None:
        """Note those of a block.

        Args:
            first: the episode that the block starts with.
            close: (B, n), which queries.
        """
        if close.any():
            some = np.flatnonzero(close.any(axis=1))
            self._episodes.append(first + some)
            self._close.append(close[some])

    def settle(self, ways: Unsigned, embeddings: F32, episodes: Episodes, classifier: Classifier) -> None:
        """Decide them, where classes that differ by rounding only are tied.

        Args:
            ways: (E, W, Q), the answers, corrected in place.
            embeddings: (N, D) float32, as they came.
            episodes: index arrays into its rows.
            classifier: whose answers they are.
        """
        if not self._episodes:
            return
        numbers, close = np.concatenate(self._episodes), np.concatenate(self._close)
        n_close = close.sum(axis=1)
        rows_of_one = episodes.support[0].size + int(n_close.max())
        step = max(1, CHUNK_VALUES // max(1, rows_of_one * embeddings.shape[1]))
        for first in range(0, len(numbers), step):
            part = slice(first, first + step)
            # As many queries of each episode, the close ones first: beside them, answers stay what they are.
            picked = (~close[part]).argsort(axis=1, kind="stable")[:, : n_close[part].max()]
            some = numbers[part, None], *np.divmod(picked, episodes.n_query)
            support = embeddings[episodes.support[numbers[part]]].astype(np.float64)
            query = embeddings[episodes.query[some]].astype(np.float64)
            ways[some] = decide_with_ties(classifier.scores(support, query), classifier)
