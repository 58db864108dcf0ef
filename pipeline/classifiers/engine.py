"""Episodes through classifiers: blocks that fit the cache, gathered once and shared by all who can use them.

Results do not depend on the number of threads, nor on the BLAS: a query whose best two classes lie within
the rounding of float32 is scored again in float64, where classes that differ by rounding only are tied.
"""

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from fsnl.cache.arrays import F32, Unsigned
from fsnl.cache.schema import Episodes
from fsnl.pipeline.classifiers import faiss_search
from fsnl.pipeline.classifiers.base import Classifier, decide
from fsnl.pipeline.classifiers.block import Block, Buffers, Shared
from fsnl.pipeline.classifiers.close_calls import CloseCalls
from fsnl.pipeline.classifiers.rows import Rows, prepare

# Gathered embeddings per block and thread. They should fit the last cache, yet a block costs about 150 calls
# of NumPy: of 1 to 32 MiB, 16 were fastest, by a sixth before 8, on two cores with 32 MiB of cache.
BLOCK_BYTES = 16 << 20
# Products are taken from distances where no two rows' |x|^2 + |y|^2 exceeds 2 |x| |y| by this factor: their
# rounding is up to 1 + this times that of a product (twice, of rows about as long), so more are scored again.
MOST_SQUARE_RATIO = 2.0
# Up to so many supports of an episode, queries that nobody else needs are searched where they lie: it takes a
# third of the time of gathering and searching them with 2 supports, two thirds with 5, nearly all with 8.
FEW_SUPPORTS = 8


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
    embeddings: F32,
    episode_sets: Sequence[Episodes],
    classifiers: Sequence[Sequence[Classifier]],
    *,
    n_threads: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[list[Prediction]]:
    """Classify every query of every episode.

    Args:
        embeddings: (N, D) float32, finite, C-contiguous; may be a memory map.
        episode_sets: index arrays into its rows.
        classifiers: for each episode set, those to apply to it.
        n_threads: worker threads; results do not depend on it.
        progress: called, from any thread, with the number of episodes just done and of all in this call;
            nested sets count once.

    Returns:
        Per episode set, per classifier, the answers.
    """
    results: dict[int, list[Prediction]] = {}
    with threadpool_limits(limits=1, user_api="blas"):
        rows = prepare(np.asarray(embeddings))
        groups = _nested(episode_sets)
        n_all = sum(episode_sets[group[0]].n_episodes for group in groups)

        def done(n_episodes: int) -> None:
            if progress is not None:
                progress(n_episodes, n_all)

        for group in groups:
            work = _Work(rows, [episode_sets[i] for i in group], [classifiers[i] for i in group], done)
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


class _Work:
    """One group of nested episode sets, through their classifiers."""

    def __init__(
        self,
        rows: Rows,
        episode_sets: Sequence[Episodes],
        classifiers: Sequence[Sequence[Classifier]],
        progress: Callable[[int], None],
    ) -> None:
        self._rows = rows
        self._sets = episode_sets  # the first has the most shots
        self._classifiers = classifiers
        self._progress = progress
        most = episode_sets[0]
        dtype = np.min_scalar_type(most.n_way - 1)
        self._ways = [[np.empty(most.query.shape, dtype) for _ in row] for row in classifiers]
        asked = set(itertools.chain.from_iterable(_shared(row) for row in classifiers))
        self._from_products = "cosines" in asked
        # One multiplication for those who search and those who take cosines, where it costs no digits.
        near = rows.centre is None and rows.square_ratio <= MOST_SQUARE_RATIO
        self._from_distances = near and {"cosines", "distances"} <= asked
        # What each set's classifiers share, and who: its computation is charged to them in equal parts.
        self._users = [self._who_shares(row) for row in classifiers]
        # As they lie, not scaled: float32 squares of extreme differences would overflow or vanish.
        self._in_place = (
            all(c.shared == {"distances"} for c in itertools.chain.from_iterable(classifiers))
            and most.n_way * most.n_shot <= FEW_SUPPORTS
            and rows.scale == 1.0
        )
        per_episode = most.n_way * (most.n_shot + most.n_query) * rows.embeddings[:1].nbytes
        self._n_block = min(most.n_episodes, max(1, BLOCK_BYTES // max(1, per_episode)))

    def _who_shares(self, row: Sequence[Classifier]) -> dict[Shared, list[int]]:
        users = {name: [j for j, c in enumerate(row) if name in c.shared] for name in _shared(row)}
        if self._from_distances and {"distances", "cosines"} <= users.keys():
            users["distances"] = sorted({*users["distances"], *users["cosines"]})
        return users

    def run(self, n_threads: int) -> list[list[Prediction]]:
        """All blocks; each worker takes the next one left."""
        starts = deque(range(0, self._sets[0].n_episodes, self._n_block))
        with ThreadPoolExecutor(n_threads, initializer=faiss_search.use_one_thread) as pool:
            workers = [pool.submit(self._worker, starts) for _ in range(n_threads)]
            totals = [worker.result() for worker in workers]
        return [
            [
                Prediction(ways=ways, seconds=sum(total[i][j] for total in totals) / n_threads)
                for j, ways in enumerate(row)
            ]
            for i, row in enumerate(self._ways)
        ]

    def _worker(self, starts: deque[int]) -> list[list[float]]:
        """Blocks until none is left; returns busy seconds per set and classifier."""
        try:
            return self._blocks(starts)
        except BaseException:
            starts.clear()  # the other workers stop too
            raise

    def _blocks(self, starts: deque[int]) -> list[list[float]]:
        most = self._sets[0]
        buffers = Buffers(
            self._n_block,
            n_way=most.n_way,
            n_shot=most.n_shot,
            n_queries=most.n_way * most.n_query,
            dim=self._rows.embeddings.shape[1],
            centred=self._rows.centre is not None,
        )
        seconds = [[0.0] * len(row) for row in self._classifiers]
        calls = [[CloseCalls() for _ in row] for row in self._classifiers]
        while starts:
            try:
                start = starts.popleft()
            except IndexError:  # the last one went to another worker meanwhile
                break
            block = slice(start, min(start + self._n_block, most.n_episodes))
            self._block(block, buffers, calls, seconds)
            self._progress(block.stop - block.start)
        self._settle(calls, seconds)
        return seconds

    def _block(
        self,
        part: slice,
        buffers: Buffers,
        calls: list[list[CloseCalls]],
        seconds: list[list[float]],
    ) -> None:
        most = self._sets[0]
        queries = most.query[part].reshape(part.stop - part.start, -1)
        began = time.perf_counter()
        block = Block(
            self._rows,
            most.support[part],
            queries,
            buffers,
            search=search_in_place if self._in_place else search_gathered,
            queries_needed=not self._in_place,
            from_products=self._from_products,
            from_distances=self._from_distances,
        )
        gathering = (time.perf_counter() - began) / sum(map(len, self._classifiers))
        for i, row in enumerate(self._classifiers):
            some = block.first_shots(self._sets[i].n_shot)
            for name, users in self._users[i].items():
                began = time.perf_counter()
                some.prime([name])
                spent = (time.perf_counter() - began) / len(users)
                for j in users:
                    seconds[i][j] += spent
            for j, classifier in enumerate(row):
                began = time.perf_counter()
                if classifier.fast is None:
                    ways = decide(classifier.scores(*some.originals()))
                else:
                    quick = classifier.fast(some)
                    ways = quick.ways
                    if most.n_way > 1:
                        calls[i][j].put_off(part.start, quick.close)
                self._ways[i][j][part] = ways.reshape(-1, most.n_way, most.n_query)
                seconds[i][j] += gathering + time.perf_counter() - began

    def _settle(self, calls: list[list[CloseCalls]], seconds: list[list[float]]) -> None:
        for i, row in enumerate(self._classifiers):
            for j, classifier in enumerate(row):
                began = time.perf_counter()
                calls[i][j].settle(self._ways[i][j], self._rows.embeddings, self._sets[i], classifier)
                seconds[i][j] += time.perf_counter() - began


def search_gathered(block: Block) -> F32:
    """(B, n, m), by products of the centred rows."""
    support, query = block.centred
    return faiss_search.squared_distances(support.reshape(len(support), -1, block.dim), query)


def search_in_place(block: Block) -> F32:
    """(B, n, m), by differences of the rows as they lie; the block's queries are not read."""
    support = block.support.reshape(len(block.support), -1, block.dim)
    return faiss_search.squared_distances_to_rows(support, block.rows.embeddings, block.query_rows)


def _shared(classifiers: Iterable[Classifier]) -> list[Shared]:
    """What they share; first what others may be taken from."""
    order: dict[Shared, int] = {"distances": 0, "cosines": 1}
    return sorted(
        set(itertools.chain.from_iterable(c.shared for c in classifiers)), key=lambda name: order.get(name, 2)
    )
