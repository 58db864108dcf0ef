"""Stage 2: labels to few-shot episodes, as index arrays, the same on every machine for one seed.

Bharti et al. 2020, section 3: N classes uniformly without replacement from the C classes of a split; from
each class K support images (the paper's key set) and Q query images, uniformly without replacement.

Episodes are drawn in sequence, so that they nest: draw i of an item takes r uniform in [0, n - i) and
shifts it past the earlier picks in ascending order. In a class the queries are drawn first, then the
supports: with one seed the queries are the same for every K, and the supports of K = 1 are the first of
those of K = 5. The random bits are raw Philox words: stream 0 for the classes, stream 1 + i for draw i
in a class, each keyed (seed, stream) and read at position e * W + w; so episode e does not depend on how
many episodes are drawn, and no NumPy distribution whose stream could change is involved.

Drawn without replacement, an image serves in one episode at most (Lafargue et al. 2024, "Oops, I Sampled it
Again"): the rows of each class are put in a random order and used up from its start, and each episode takes
N of the classes that have K + Q rows left. Its two streams lie apart from those above.
"""

import numpy as np

from fsnl.cache.arrays import I64, U64
from fsnl.cache.errors import EpisodeError
from fsnl.cache.schema import Episodes

SAMPLER = "fsnl-philox-1"
ONCE_SAMPLER = "fsnl-philox-once-1"
# Streams without replacement: the words that order the rows, and the draws of classes.
ROW_STREAM, CLASS_STREAM = 1 << 32, (1 << 32) + 1
# Episodes drawn at a time: the working arrays stay in the cache, and a million episodes in memory.
BLOCK = 2048


def sample_episodes(
    labels: I64,
    *,
    n_way: int,
    n_shot: int,
    n_query: int,
    n_episodes: int,
    seed: int,
    class_names: tuple[str, ...] | None = None,
) -> Episodes:
    """Draw episodes with replacement between, and without replacement within, episodes.

    Args:
        labels: (N,) int64, the class of each row, in 0..C-1; every class has at least one row.
        n_way: classes per episode, 1..C.
        n_shot: support rows per class.
        n_query: query rows per class.
        n_episodes: how many.
        seed: 0..2**63-1.
        class_names: C names, for messages.

    Returns:
        Episodes: classes (E, n_way), support (E, n_way, n_shot), query (E, n_way, n_query), int64.

    Raises:
        EpisodeError: too few classes, a class with fewer than n_shot + n_query rows, or an argument out
            of its range.

    >>> labels = np.repeat(np.arange(3), 4)
    >>> episodes = sample_episodes(labels, n_way=2, n_shot=1, n_query=2, n_episodes=1, seed=0)
    >>> episodes.classes.shape, episodes.support.shape, episodes.query.shape
    ((1, 2), (1, 2, 1), (1, 2, 2))
    """
    _check_arguments(n_way=n_way, n_shot=n_shot, n_query=n_query, n_episodes=n_episodes, seed=seed)
    counts = np.bincount(labels)
    _check_feasible(counts, n_way=n_way, n_shot=n_shot, n_query=n_query, class_names=class_names)
    # Rows of class c, ascending, are rows[starts[c] : starts[c] + counts[c]].
    rows = np.argsort(labels, kind="stable").astype(np.int64, copy=False)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
    classes = np.empty((n_episodes, n_way), dtype=np.int64)
    picks = np.empty((n_episodes, n_way, n_query + n_shot), dtype=np.int64)
    for first in range(0, n_episodes, BLOCK):
        block = slice(first, min(first + BLOCK, n_episodes))
        classes[block] = _draw_classes(len(counts), n_way=n_way, seed=seed, episodes=block)
        flat = classes[block].ravel()  # (B * W,)
        drawn = _draw_in_class(counts[flat], n_draws=n_query + n_shot, seed=seed, first=first * n_way)
        picks[block] = rows[starts[flat][:, None] + drawn].reshape(-1, n_way, n_query + n_shot)
    return Episodes(
        classes=classes,
        support=np.ascontiguousarray(picks[:, :, n_query:]),
        query=np.ascontiguousarray(picks[:, :, :n_query]),
        seed=seed,
        sampler=SAMPLER,
        sampling="with replacement",
    )


def sample_episodes_without_replacement(
    labels: I64,
    *,
    n_way: int,
    n_shot: int,
    n_query: int,
    n_episodes: int,
    seed: int,
    class_names: tuple[str, ...] | None = None,
) -> Episodes:
    """Draw episodes that share no row, until fewer than n_way classes have enough rows left.

    Args:
        labels: (N,) int64, as in `sample_episodes`; so are the other arguments, save for one.
        n_episodes: how many at most.

    Returns:
        Episodes, as in `sample_episodes`; E is the number there are. Episode e does not depend on n_episodes,
        but another n_shot gives other queries.

    Raises:
        EpisodeError: as in `sample_episodes`.

    >>> labels = np.repeat(np.arange(3), 6)
    >>> episodes = sample_episodes_without_replacement(
    ...     labels, n_way=2, n_shot=1, n_query=2, n_episodes=100, seed=1
    ... )
    >>> episodes.n_episodes, len(np.unique(episodes.query)), len(np.unique(episodes.support))
    (3, 12, 6)
    """
    _check_arguments(n_way=n_way, n_shot=n_shot, n_query=n_query, n_episodes=n_episodes, seed=seed)
    counts = np.bincount(labels)
    _check_feasible(counts, n_way=n_way, n_shot=n_shot, n_query=n_query, class_names=class_names)
    ranked = np.argsort(labels, kind="stable")
    words = _raw_bits(seed=seed, stream=ROW_STREAM, first=0, count=len(labels))
    rows = ranked[np.lexsort((words, labels[ranked]))].astype(np.int64, copy=False)  # shuffled in each class
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
    used = n_shot + n_query
    turns = _take_turns(counts // used, n_way=n_way, n_episodes=n_episodes, seed=seed)
    first = starts[turns[..., 0]] + used * turns[..., 1]
    picks = rows[first[..., None] + np.arange(used)]  # (E, W, Q + K)
    return Episodes(
        classes=np.ascontiguousarray(turns[..., 0]),
        support=np.ascontiguousarray(picks[:, :, n_query:]),
        query=np.ascontiguousarray(picks[:, :, :n_query]),
        seed=seed,
        sampler=ONCE_SAMPLER,
        sampling="without replacement",
    )


def _take_turns(portions: I64, *, n_way: int, n_episodes: int, seed: int) -> I64:
    """Which classes take part in each episode, and for which time: (E, n_way, 2) int64.

    Args:
        portions: (C,) int64, how many episodes each class can take part in.
    """
    most = min(n_episodes, int(portions.sum()) // n_way)
    bits = _raw_bits(seed=seed, stream=CLASS_STREAM, first=0, count=most * n_way).reshape(most, n_way)
    left = portions.tolist()
    turns = []
    for words in bits:
        able = [c for c, n in enumerate(left) if n > 0]
        if len(able) < n_way:
            break
        ranks = _bounded(words, np.arange(len(able), len(able) - n_way, -1, dtype=np.uint64))
        chosen = [able.pop(rank) for rank in ranks.tolist()]
        turns.append([(c, portions[c] - left[c]) for c in chosen])
        for c in chosen:
            left[c] -= 1
    return np.array(turns, dtype=np.int64)


def _draw_classes(n_classes: int, *, n_way: int, seed: int, episodes: slice) -> I64:
    """Classes of a range of episodes, (B, n_way) int64: stream 0, position e * n_way + w."""
    n_block = episodes.stop - episodes.start
    bits = _raw_bits(seed=seed, stream=0, first=episodes.start * n_way, count=n_block * n_way)
    picked = _DistinctPicks(n_block, n_way)
    for way, column in enumerate(bits.reshape(n_block, n_way).T):
        picked.add(_bounded(column, np.full(n_block, n_classes - way, dtype=np.uint64)))
    return picked.in_order()


def _draw_in_class(counts: I64, *, n_draws: int, seed: int, first: int) -> I64:
    """Distinct positions within each class, (len(counts), n_draws) int64: draw i from stream 1 + i."""
    n_items = len(counts)
    picked = _DistinctPicks(n_items, n_draws)
    for draw in range(n_draws):
        bits = _raw_bits(seed=seed, stream=1 + draw, first=first, count=n_items)
        picked.add(_bounded(bits, (counts - draw).astype(np.uint64)))
    return picked.in_order()


class _DistinctPicks:
    """Many independent draws without replacement, side by side.

    Args:
        n_items: how many independent urns.
        n_draws: how many picks each will see.
    """

    def __init__(self, n_items: int, n_draws: int) -> None:
        self._drawn = np.empty((n_draws, n_items), dtype=np.int64)  # as they came
        self._sorted = np.empty((n_draws, n_items), dtype=np.int64)  # ascending per urn
        self._n = 0

    def add(self, rank: I64) -> None:
        """Pick the rank-th of what is left in each urn; rank: (n_items,) int64."""
        pick = rank.copy()
        for earlier in self._sorted[: self._n]:
            pick += pick >= earlier
        self._drawn[self._n] = pick
        # Insert into the sorted picks: carry the larger value along.
        for earlier in self._sorted[: self._n]:
            smaller = np.minimum(earlier, pick)
            np.maximum(earlier, pick, out=pick)
            earlier[:] = smaller
        self._sorted[self._n] = pick
        self._n += 1

    def in_order(self) -> I64:
        """(n_items, n_draws) int64, in the order of drawing."""
        return np.ascontiguousarray(self._drawn.T)


def _raw_bits(*, seed: int, stream: int, first: int, count: int) -> U64:
    """Words first..first+count of one Philox4x64 stream, (count,) uint64."""
    # A counter step gives four words.
    generator = np.random.Philox(key=np.array([seed, stream], dtype=np.uint64)).advance(first // 4)
    words = generator.random_raw(first % 4 + count)
    return np.asarray(words[first % 4 :], dtype=np.uint64)


def _bounded(bits: U64, bound: U64) -> I64:
    """Uniform in [0, bound): the upper 32 bits times the bound, shifted down. Bias below bound / 2**32."""
    upper = bits >> np.uint64(32)
    return np.asarray((upper * bound) >> np.uint64(32), dtype=np.int64)


def _check_arguments(*, n_way: int, n_shot: int, n_query: int, n_episodes: int, seed: int) -> None:
    named = {"n_way": n_way, "n_shot": n_shot, "n_query": n_query, "n_episodes": n_episodes}
    for name, value in named.items():
        if value < 1:
            msg = f"{name} is {value}, needed at least 1"
            raise EpisodeError(msg)
    if not 0 <= seed < 2**63:
        msg = f"seed is {seed}, needed 0 to 2**63 - 1"
        raise EpisodeError(msg)


def _check_feasible(
    counts: I64, *, n_way: int, n_shot: int, n_query: int, class_names: tuple[str, ...] | None
) -> None:
    if len(counts) < n_way:
        msg = f"the split has {len(counts)} classes, fewer than n_way = {n_way}; ask for fewer ways"
        raise EpisodeError(msg)
    small = np.flatnonzero(counts < n_shot + n_query)
    if small.size:
        worst = int(small[np.argmin(counts[small])])
        name = repr(class_names[worst]) if class_names is not None else str(worst)
        others = f" ({small.size} such classes)" if small.size > 1 else ""
        msg = (
            f"class {name} has {counts[worst]} images, fewer than n_shot + n_query = "
            f"{n_shot} + {n_query}{others}; ask for fewer, or leave the class out"
        )
        raise EpisodeError(msg)
