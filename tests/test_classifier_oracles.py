"""Every classifier against scikit-learn's, or against a few lines of float64 where it has none."""

import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from threadpoolctl import threadpool_limits

from fsnl.cache.arrays import F32, F64, I64
from fsnl.cache.schema import Episodes
from fsnl.pipeline.classifiers.engine import predict
from fsnl.pipeline.classifiers.logistic import GRADIENT_TOLERANCE, logistic_weights
from fsnl.pipeline.classifiers.registry import build_classifier
from fsnl.pipeline.episodes import sample_episodes

N_WAY, N_SHOT, N_QUERY = 5, 3, 2
N_EPISODES = 200
N_CLASSES, N_PER_CLASS = 8, 25
LABELS = np.repeat(np.arange(N_CLASSES, dtype=np.int64), N_PER_CLASS)
# Scores closer than this part of their size are a tie in the oracle's own arithmetic.
TIE = 1e-9
# scikit-learn's solver stops here; ours goes further.
LOGIT_MARGIN = 1e-3


def gaussian(rng: np.random.Generator, dim: int) -> F64:
    return rng.normal(size=(len(LABELS), dim))


def clustered(rng: np.random.Generator, dim: int) -> F64:
    return rng.normal(size=(N_CLASSES, dim))[LABELS] + 2 * gaussian(rng, dim)


def tied(rng: np.random.Generator, dim: int) -> F64:
    """Small whole numbers in few dimensions that differ: many distances are equal."""
    rows = np.zeros((len(LABELS), dim))
    rows[:, :6] = rng.integers(-1, 2, size=(len(LABELS), 6))
    rows[:, 6] = 1.0
    return rows


def constant_dimensions(rng: np.random.Generator, dim: int) -> F64:
    rows = clustered(rng, dim)
    rows[:, ::3] = 2.5
    return rows


def large_offset(rng: np.random.Generator, dim: int) -> F64:
    return clustered(rng, dim) + 1000


KINDS = [gaussian, clustered, tied, constant_dimensions, large_offset]


def ways_of(support: F64) -> I64:
    """(W * K,), of supports that lie way by way."""
    return np.repeat(np.arange(N_WAY), len(support) // N_WAY)


def units(rows: F64) -> F64:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def squared(query: F64, points: F64) -> F64:
    return np.stack([np.square(query - point).sum(axis=1) for point in points], axis=1)


def nearest(support: F64, query: F64) -> F64:
    return np.asarray(-squared(query, support).reshape(len(query), N_WAY, -1).min(axis=2))


def prototype(support: F64, query: F64) -> F64:
    return -squared(query, support.reshape(N_WAY, -1, support.shape[1]).mean(axis=1))


def ridge(support: F64, query: F64) -> F64:
    """Least squares by scikit-learn's own formula, with centred supports and targets."""
    mean, targets = support.mean(axis=0), 2 * np.eye(N_WAY)[ways_of(support)] - 1
    centred = support - mean
    dual = np.linalg.solve(centred @ centred.T + np.eye(len(support)), targets - targets.mean(axis=0))
    return np.asarray((query - mean) @ centred.T @ dual + targets.mean(axis=0))


def scikit_nearest(support: F64, query: F64) -> I64:
    return np.asarray(
        KNeighborsClassifier(1, algorithm="brute").fit(support, ways_of(support)).predict(query)
    )


def scikit_prototype(support: F64, query: F64) -> I64:
    with warnings.catch_warnings(), np.errstate(all="ignore"):  # constant dimensions, on the way
        warnings.filterwarnings("ignore", message=".*zero standard deviation")
        return np.asarray(NearestCentroid().fit(support, ways_of(support)).predict(query))


def scikit_ridge(support: F64, query: F64) -> I64:
    return np.asarray(RidgeClassifier(alpha=1.0).fit(support, ways_of(support)).predict(query))


def by_cosine(reduce: Callable[[F64], F64]) -> Callable[[F64, F64], F64]:
    return lambda support, query: reduce((units(query) @ units(support).T).reshape(len(query), N_WAY, -1))


def prototype_cosine(support: F64, query: F64) -> F64:
    means = support.reshape(N_WAY, -1, support.shape[1]).mean(axis=1)
    return np.asarray(units(query) @ units(means).T)


def softmax_sums(cosine: F64) -> F64:
    exponentials = np.exp(cosine)
    return np.asarray(exponentials.sum(axis=2) / exponentials.sum(axis=(1, 2))[:, None])


# Scores of each way in float64, (n, W).
FORMULAS: dict[str, Callable[[F64, F64], F64]] = {
    "1nn": nearest,
    "prototype": prototype,
    "prototype-cosine": prototype_cosine,
    "attention": by_cosine(softmax_sums),
    "attention:10": by_cosine(lambda cosine: softmax_sums(10 * cosine)),
    "attention-max": by_cosine(lambda cosine: cosine.max(axis=2)),
    "mean-cosine": by_cosine(lambda cosine: cosine.mean(axis=2)),
    "ridge": ridge,
}
# Ways by scikit-learn, (n,).
SCIKIT: dict[str, Callable[[F64, F64], I64]] = {
    "1nn": scikit_nearest,
    "prototype": scikit_prototype,
    "ridge": scikit_ridge,
}


@pytest.fixture(autouse=True)
def _one_core_for_small_matrices() -> Iterator[None]:
    with threadpool_limits(1):
        yield


def drawn(n_episodes: int = N_EPISODES, *, n_shot: int = N_SHOT) -> Episodes:
    return sample_episodes(LABELS, n_way=N_WAY, n_shot=n_shot, n_query=N_QUERY, n_episodes=n_episodes, seed=3)


def ours(embeddings: F32, episodes: Episodes, name: str) -> I64:
    [[prediction]] = predict(embeddings, [episodes], [[build_classifier(name)]], n_threads=2)
    return prediction.ways.reshape(episodes.n_episodes, -1).astype(np.int64)


def each_episode(embeddings: F32, episodes: Episodes) -> Iterator[tuple[F64, F64]]:
    for support, query in zip(episodes.support, episodes.query, strict=True):
        yield embeddings[support.ravel()].astype(np.float64), embeddings[query.ravel()].astype(np.float64)


def tied_with_the_best(scores: F64, ways: I64, *, margin: float = TIE) -> list[bool]:
    """For each query, whether the score of that way lies within a part of their size from the best."""
    best, mine = scores.max(axis=1), scores[np.arange(len(ways)), ways]
    size = np.maximum(np.abs(best), 1e-3 * np.abs(scores).max(axis=1))
    close: list[bool] = (best - mine <= margin * size).tolist()
    return close


@pytest.mark.parametrize("dim", [64, 2048])
@pytest.mark.parametrize("n_shot", [1, N_SHOT])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FORMULAS)
def test_answers_equal_the_formula_and_scikit_learn_outside_ties(
    name: str, kind: Callable[[np.random.Generator, int], F64], n_shot: int, dim: int
) -> None:
    embeddings = kind(np.random.default_rng(dim), dim).astype(np.float32)
    episodes = drawn(n_shot=n_shot)
    answers = ours(embeddings, episodes, name)
    n_different = 0
    for e, (support, query) in enumerate(each_episode(embeddings, episodes)):
        scores = FORMULAS[name](support, query)
        assert all(tied_with_the_best(scores, answers[e]))
        n_different += int((answers[e] != scores.argmax(axis=1)).sum())
        if name in SCIKIT:
            assert all(tied_with_the_best(scores, SCIKIT[name](support, query)))
    if kind is not tied:
        assert n_different <= 2


@pytest.mark.parametrize("dim", [64, 2048])
@pytest.mark.parametrize("kind", KINDS)
def test_logistic_answers_equal_scikit_learns_outside_a_margin(
    kind: Callable[[np.random.Generator, int], F64], dim: int
) -> None:
    embeddings = kind(np.random.default_rng(dim), dim).astype(np.float32)
    episodes = drawn()
    answers = ours(embeddings, episodes, "logistic")
    for e, (support, query) in enumerate(each_episode(embeddings, episodes)):
        mean = support.mean(axis=0)  # the intercept is free, and their solver likes it
        model = LogisticRegression(C=1.0, tol=1e-6, max_iter=10_000).fit(support - mean, ways_of(support))
        logits = model.decision_function(query - mean)
        assert all(tied_with_the_best(logits, answers[e], margin=LOGIT_MARGIN))


@pytest.mark.parametrize("kind", KINDS)
def test_logistic_weights_meet_the_stated_tolerance_of_the_gradient(
    kind: Callable[[np.random.Generator, int], F64],
) -> None:
    embeddings = kind(np.random.default_rng(5), 40)
    own = np.repeat(np.eye(N_WAY), N_SHOT, axis=0)
    for rows in drawn(20).support:
        support = embeddings[rows.ravel()]
        centred = support - support.mean(axis=0)
        for penalty in (0.01, 1.0, 100.0):
            weights, bias = logistic_weights(
                centred[None], (centred @ centred.T)[None], N_WAY, inverse_penalty=penalty
            )
            at_zero = gradient(centred, own, np.zeros((40, N_WAY)), np.zeros(N_WAY), penalty=penalty)
            found = gradient(centred, own, weights[0].T, bias[0], penalty=penalty)
            assert found <= 2 * GRADIENT_TOLERANCE * at_zero


def gradient(support: F64, own: F64, weights: F64, bias: F64, *, penalty: float) -> float:
    """Norm of the gradient of C * cross entropy + 1/2 |weights|^2 by weights and bias."""
    logits = support @ weights + bias
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    off = penalty * (exponentials / exponentials.sum(axis=1, keepdims=True) - own)
    return float(np.sqrt(np.square(support.T @ off + weights).sum() + np.square(off.sum(axis=0)).sum()))


@pytest.mark.parametrize("dim", [64, 2048])
@pytest.mark.parametrize("kind", KINDS)
def test_the_majority_of_three_equals_scikit_learns_where_votes_are_not_tied(
    kind: Callable[[np.random.Generator, int], F64], dim: int
) -> None:
    embeddings = kind(np.random.default_rng(dim), dim).astype(np.float32)
    episodes = drawn()
    n_compared = 0
    for answers, (support, query) in zip(
        ours(embeddings, episodes, "knn:3"), each_episode(embeddings, episodes), strict=True
    ):
        model = KNeighborsClassifier(3, algorithm="brute").fit(support, ways_of(support))
        votes = np.sort(model.predict_proba(query), axis=1)
        ordered = np.sort(squared(query, support), axis=1)
        clear = (votes[:, -1] > votes[:, -2]) & (ordered[:, 3] - ordered[:, 2] > TIE * ordered[:, 3])
        assert (answers == model.predict(query))[clear].all()
        n_compared += int(clear.sum())
    assert n_compared > 100


@pytest.mark.parametrize("n_neighbours", [1, 2, 4, 15])
@pytest.mark.parametrize("kind", KINDS)
def test_votes_distances_and_places_break_ties_in_this_order(
    kind: Callable[[np.random.Generator, int], F64], n_neighbours: int
) -> None:
    embeddings = kind(np.random.default_rng(7), 64).astype(np.float32)
    episodes = drawn()
    answers = ours(embeddings, episodes, f"knn:{n_neighbours}")
    for row, (support, query) in zip(answers, each_episode(embeddings, episodes), strict=True):
        for answer, distances in zip(row, squared(query, support), strict=True):
            assert answer == majority(np.round(distances, 6).tolist(), n_neighbours)


def majority(distances: list[float], n_neighbours: int) -> int:
    """Most votes, then least summed distance, then lowest way; of equal distances the first are nearer."""
    kept = sorted(range(len(distances)), key=lambda i: (distances[i], i))[:n_neighbours]
    votes = [[distances[i] for i in kept if i // N_SHOT == way] for way in range(N_WAY)]
    return min(range(N_WAY), key=lambda way: (-len(votes[way]), round(sum(votes[way]), 6), way))
