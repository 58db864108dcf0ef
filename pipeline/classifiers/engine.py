"""Episodes through classifiers: blocks that fit the cache, gathered once and shared by all who can use them.

Results do not depend on the number of threads, nor, save for exact ties, on the BLAS: a block's composition
is fixed, and a query whose best two classes lie closer than rounding is scored again in float64.
"""

import itertools
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from fsnl.cache.arrays import F32, F64, I64, Bool, Unsigned
from fsnl.cache.schema import Episodes
from fsnl.pipeline.classifiers import faiss_search
from fsnl.pipeline.classifiers.base import Classifier, decide
from fsnl.pipeline.classifiers.similarity import inverse_norms, products

# Gathered embeddings per block and thread: about the size of a core's share of the cache.
BLOCK_BYTES = 4 << 20
# In float64, scores closer than this (relative) are a tie: the lowest way answers.
TIE = 1e-12


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one classifier answered.

    Attributes:
        ways: (E, W, Q) unsigned, the way answered for each query.
        seconds: wall-clock time spent on it, its share of gathering included.
    """

    ways: Unsigned
    seconds: float


def predict(
    embeddings: F32, episode_sets: Sequence[Episodes], classifiers: Sequence[Classifier], *, n_threads: int
) -> list[list[Prediction]]:
    """Classify every query of every episode with every classifier.

    Args:
        embeddings: (N, D) float32, finite, C-contiguous; may be a memory map.
        episode_sets: index arrays into its rows.
        classifiers: applied to each.
        n_threads: worker threads; results do not depend on it.

    Returns:
        Per episode set, per classifier, the answers.
    """
    norms = _inverse_row_norms(embeddings) if any(c.from_cosines for c in classifiers) else None
    results: dict[int, list[Prediction]] = {}
    with threadpool_limits(limits=1, user_api="blas"):
        for group in _nested(episode_sets):
            work = _Work(embeddings, norms, [episode_sets[i] for i in group], classifiers)
            results.update(zip(group, work.run(n_threads), strict=True))
    return [results[i] for i in range(len(episode_sets))]


def _nested(episode_sets: Sequence[Episodes]) -> list[list[int]]:
    """Groups of positions whose queries are the same and whose supports nest; the most shots come first."""
    groups: list[list[int]] = []
    for i in sorted(range(len(episode_sets)), key=lambda i: -episode_sets[i].n_shot):
        for group in groups:
            if _nests(episode_sets[i], episode_sets[group[0]]):
                group.append(i)
                break
        else:
            groups.append([i])
    return groups


def _nests(small: Episodes, large: Episodes) -> bool:
    return (
        np.array_equal(small.classes, large.classes)
        and np.array_equal(small.query, large.query)
        and np.array_equal(small.support, large.support[:, :, : small.n_shot])
    )


def _inverse_row_norms(embeddings: F32) -> F32:
    """(N,) float32, streamed."""
    inverse = np.empty(len(embeddings), dtype=np.float32)
    step = max(1, BLOCK_BYTES // max(1, embeddings.shape[1] * embeddings.itemsize))
    for first in range(0, len(embeddings), step):
        inverse[first : first + step] = inverse_norms(embeddings[first : first + step])
    return inverse


class _Work:
    """One group of nested episode sets, through all classifiers."""

    def __init__(
        self,
        embeddings: F32,
        norms: F32 | None,
        episode_sets: Sequence[Episodes],
        classifiers: Sequence[Classifier],
    ) -> None:
        self._embeddings = np.asarray(embeddings)
        self._norms = norms
        self._sets = episode_sets  # the first has the most shots
        self._classifiers = classifiers
        most = episode_sets[0]
        dtype = np.min_scalar_type(most.n_way - 1)
        self._ways = [[np.empty(most.query.shape, dtype) for _ in classifiers] for _ in episode_sets]
        per_episode = most.n_way * (most.n_shot + most.n_query) * embeddings.shape[1] * embeddings.itemsize
        self._n_block = min(most.n_episodes, max(1, BLOCK_BYTES // max(1, per_episode)))

    def run(self, n_threads: int) -> list[list[Prediction]]:
        """All blocks; each worker takes the next one left."""
        starts = deque(range(0, self._sets[0].n_episodes, self._n_block))
        with ThreadPoolExecutor(n_threads, initializer=faiss_search.use_one_thread) as pool:
            workers = [pool.submit(self._worker, starts) for _ in range(n_threads)]
            seconds = np.sum([worker.result() for worker in workers], axis=0) / n_threads
        return [
            [Prediction(ways=ways, seconds=float(s)) for ways, s in zip(row, times, strict=True)]
            for row, times in zip(self._ways, seconds, strict=True)
        ]

    def _worker(self, starts: deque[int]) -> F64:
        """Blocks until none is left; returns busy seconds per (set, classifier)."""
        try:
            return self._blocks(starts)
        except BaseException:
            starts.clear()  # the other workers stop too
            raise

    def _blocks(self, starts: deque[int]) -> F64:
        most = self._sets[0]
        dim = self._embeddings.shape[1]
        # Two buffers for the worker's life: a fresh allocation per block would cost more than the gather.
        support = np.empty((self._n_block, most.n_way, most.n_shot, dim), np.float32)
        query = np.empty((self._n_block, most.n_way * most.n_query, dim), np.float32)
        seconds = np.zeros((len(self._sets), len(self._classifiers)))
        while starts:
            try:
                start = starts.popleft()
            except IndexError:  # the last one went to another worker meanwhile
                break
            block = slice(start, min(start + self._n_block, most.n_episodes))
            n = block.stop - start
            self._block(block, support[:n], query[:n], seconds)
        return seconds

    def _block(self, block: slice, support: F32, query: F32, seconds: F64) -> None:
        began = time.perf_counter()
        most = self._sets[0]
        query_rows = most.query[block].reshape(len(query), -1)
        support_rows = most.support[block]
        np.take(self._embeddings, support_rows, axis=0, out=support, mode="clip")
        np.take(self._embeddings, query_rows, axis=0, out=query, mode="clip")
        cosine: F32 | None = None
        if self._norms is not None:
            cosine = products(support, query)  # (B, n, W, K)
            cosine *= self._norms[query_rows][:, :, None, None]
            cosine *= self._norms[support_rows][:, None, :, :]
        seconds += (time.perf_counter() - began) / seconds.size
        for i, j in itertools.product(range(len(self._sets)), range(len(self._classifiers))):
            began = time.perf_counter()
            n_shot = self._sets[i].n_shot
            answers = _answer(self._classifiers[j], support[:, :, :n_shot], query, cosine)
            self._ways[i][j][block] = answers.reshape(-1, most.n_way, most.n_query)
            seconds[i, j] += time.perf_counter() - began


def _answer(classifier: Classifier, support: F32, query: F32, cosine: F32 | None) -> I64:
    """Ways answered, (B, n) int64."""
    if classifier.from_cosines is not None and cosine is not None:
        scores = classifier.from_cosines(cosine[..., : support.shape[2]])
    else:
        scores = classifier.scores(support, query)
    ways = decide(scores)
    if classifier.margin > 0 and scores.shape[2] > 1:
        close = _close_calls(scores, margin=classifier.margin)
        for episode in np.flatnonzero(close.any(axis=1)):
            picked = np.flatnonzero(close[episode])
            one_support, few_queries = support[None, episode], query[None, episode, :][:, picked]
            precise = classifier.scores(one_support.astype(np.float64), few_queries.astype(np.float64))
            ways[episode, picked] = _decide_with_ties(precise[0])
    return ways


def _close_calls(scores: F32, *, margin: float) -> Bool:
    """(B, n) where the best two of (B, n, W) scores differ by less than `margin`, relative to the best."""
    best_two = np.partition(scores, -2, axis=-1)[..., -2:]
    gap = best_two[..., 1] - best_two[..., 0]
    return np.asarray(gap <= margin * np.abs(best_two[..., 1]))


def _decide_with_ties(scores: F32) -> I64:
    """The lowest way whose float64 score is the best one's but for rounding."""
    best = scores.max(axis=-1, keepdims=True)
    return np.asarray((scores >= best - TIE * np.abs(best)).argmax(axis=-1), dtype=np.int64)
