"""Slow, obvious references: one random word, one draw, one query at a time, in plain Python numbers.

Written from the papers and from the statement of the rules, not from the code that they are held against.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

Vector = Sequence[float]
# Nested lists: (E, W), (E, W, K), (E, W, Q).
Drawn = tuple[list[list[int]], list[list[list[int]]], list[list[list[int]]]]

_WORD = 2**64


@lru_cache(maxsize=1 << 16)
def philox(counter: int, key: tuple[int, int]) -> tuple[int, int, int, int]:
    """One block of Philox4x64-10: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"."""
    words = [(counter >> (64 * i)) % _WORD for i in range(4)]
    for i in range(10):
        left, right = 0xD2E7470EE14C6C93 * words[0], 0xCA5A826395121157 * words[2]
        key_0 = (key[0] + i * 0x9E3779B97F4A7C15) % _WORD
        key_1 = (key[1] + i * 0xBB67AE8584CAA73B) % _WORD
        words = [
            (right // _WORD) ^ words[1] ^ key_0,
            right % _WORD,
            (left // _WORD) ^ words[3] ^ key_1,
            left % _WORD,
        ]
    return words[0], words[1], words[2], words[3]


def philox_word(*, seed: int, stream: int, position: int) -> int:
    """The word at a position of a stream. NumPy counts before it computes, so its first block is number 1."""
    return philox(position // 4 + 1, (seed, stream))[position % 4]


def below(bound: int, *, seed: int, stream: int, position: int) -> int:
    """One number in [0, bound): the word's upper half times the bound, its lower half cut off."""
    return (philox_word(seed=seed, stream=stream, position=position) >> 32) * bound >> 32


def draw_episodes(
    labels: Sequence[int], *, n_way: int, n_shot: int, n_query: int, n_episodes: int, seed: int
) -> Drawn:
    """Classes, support and query rows, drawn one after another from urns.

    An urn holds what is left in ascending order; draw i takes the r-th of it. Way w of episode e reads
    position e * n_way + w: of stream 0 for its class, of stream 1 + i for draw i of its rows. The queries
    are drawn before the supports.
    """
    all_classes, all_support, all_query = [], [], []
    for episode in range(n_episodes):
        urn = sorted(set(labels))
        classes, support, query = [], [], []
        for way in range(n_way):
            position = episode * n_way + way
            chosen = urn.pop(below(len(urn), seed=seed, stream=0, position=position))
            rows = [row for row, label in enumerate(labels) if label == chosen]
            picks = [
                rows.pop(below(len(rows), seed=seed, stream=1 + draw, position=position))
                for draw in range(n_query + n_shot)
            ]
            classes.append(chosen)
            query.append(picks[:n_query])
            support.append(picks[n_query:])
        all_classes.append(classes)
        all_support.append(support)
        all_query.append(query)
    return all_classes, all_support, all_query


def nearest_way(support: Sequence[Sequence[Vector]], query: Vector) -> int:
    """The way of the support at the least squared distance; of equal ones the first, way by way."""
    best_way, best = -1, math.inf
    for way, shots in enumerate(support):
        for shot in shots:
            distance = math.fsum((a - b) ** 2 for a, b in zip(shot, query, strict=True))
            if distance < best:
                best_way, best = way, distance
    return best_way


def cosine(a: Vector, b: Vector) -> float:
    """The cosine of two vectors; 0 where one of them is zero."""
    lengths = math.sqrt(math.fsum(x * x for x in a)) * math.sqrt(math.fsum(x * x for x in b))
    return math.fsum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else 0.0


def attention(
    support: Sequence[Sequence[Vector]], query: Vector, *, scale: float = 1.0
) -> tuple[list[float], int]:
    """Matching Networks: the weight of each way, which add up to 1, and the way of the largest single one.

    Vinyals et al. 2016: a(q, s) = exp(cos(q, s)) / sum over all supports, summed over those of one way.
    """
    exponentials = [[math.exp(scale * cosine(shot, query)) for shot in shots] for shots in support]
    total = math.fsum(value for row in exponentials for value in row)
    largest = [max(row) for row in exponentials]
    return [math.fsum(row) / total for row in exponentials], largest.index(max(largest))


def nt_xent(first: Sequence[Vector], second: Sequence[Vector], *, temperature: float) -> float:
    """SimCLR's loss: Chen et al. 2020, equation 1, one pair of views after another.

    View i of 2B and its partner j: l(i, j) = -log(exp(s_ij / t) / sum over k != i of exp(s_ik / t)), where
    s is the cosine; the mean over all views, each with its partner.
    """
    views = [*first, *second]
    losses = []
    for i, view in enumerate(views):
        partner = (i + len(first)) % len(views)
        exponentials = {
            k: math.exp(cosine(view, other) / temperature) for k, other in enumerate(views) if k != i
        }
        losses.append(-math.log(exponentials[partner] / math.fsum(exponentials.values())))
    return math.fsum(losses) / len(losses)
