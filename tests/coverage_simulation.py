"""How often the 95 % intervals cover what they are intervals for, on toy data where the truth is known.

Each repetition draws 20 classes in a population of classes (Gaussian clouds in 8 dimensions, whose centres
and widths differ from class to class), 30 embeddings of each, and scores 1,000 episodes of 5-way 1-shot 1-NN.
Two truths are known: the accuracy on these embeddings, exactly, by counting; and the accuracy over new
classes, as the mean over many other draws.

    python tests/coverage_simulation.py [REPETITIONS]
"""

import sys
from dataclasses import dataclass
from math import comb

import numpy as np

from fsnl.cache.arrays import F32, F64, I64
from fsnl.pipeline.episodes import sample_episodes
from fsnl.pipeline.statistics import class_interval, episode_interval

N_CLASSES, N_IMAGES, N_WAY, N_QUERY, N_EPISODES = 20, 30, 5, 15, 1_000
DIMENSIONS = 8
LABELS: I64 = np.repeat(np.arange(N_CLASSES, dtype=np.int64), N_IMAGES)


@dataclass(frozen=True, slots=True)
class Coverage:
    """Shares of repetitions in which an interval held the truth.

    Attributes:
        closed_of_these_images: the interval over episodes, and the accuracy on the same embeddings.
        closed_of_new_classes: the interval over episodes, and the accuracy over new classes.
        classes_of_new_classes: the interval over classes, and the accuracy over new classes.
        half_widths: means of the two half widths, over episodes and over classes.
        flagged: share of repetitions whose class interval was called doubtful.
    """

    closed_of_these_images: float
    closed_of_new_classes: float
    classes_of_new_classes: float
    half_widths: tuple[float, float]
    flagged: float


def simulate(repetitions: int) -> Coverage:
    """Coverage over that many repetitions, the same every time."""
    new_classes = np.mean([exact_accuracy(draw(10_000 + i)) for i in range(repetitions)])
    closed, new_closed, new_class, flagged, widths = [], [], [], [], []
    for repetition in range(repetitions):
        embeddings = draw(repetition)
        accuracies, classes = score(embeddings, seed=repetition)
        over_episodes, over_classes = episode_interval(accuracies), class_interval(accuracies, classes)
        assert over_episodes.half_width is not None
        assert over_classes.half_width is not None
        to_new = abs(accuracies.mean() - new_classes)
        closed.append(abs(accuracies.mean() - exact_accuracy(embeddings)) <= over_episodes.half_width)
        new_closed.append(to_new <= over_episodes.half_width)
        new_class.append(to_new <= over_classes.half_width)
        flagged.append(over_classes.reason is not None)
        widths.append((over_episodes.half_width, over_classes.half_width))
    mean_widths = np.mean(widths, axis=0)
    return Coverage(
        closed_of_these_images=float(np.mean(closed)),
        closed_of_new_classes=float(np.mean(new_closed)),
        classes_of_new_classes=float(np.mean(new_class)),
        half_widths=(float(mean_widths[0]), float(mean_widths[1])),
        flagged=float(np.mean(flagged)),
    )


def draw(seed: int) -> F32:
    """(600, 8) float32 embeddings of 20 new classes, in the order of LABELS."""
    random = np.random.default_rng(seed)
    centres = random.normal(0, 0.9, (N_CLASSES, 1, DIMENSIONS))
    widths = np.exp(random.normal(0, 0.2, (N_CLASSES, 1, 1)))
    points = centres + widths * random.normal(size=(N_CLASSES, N_IMAGES, DIMENSIONS))
    return np.ascontiguousarray(points.reshape(-1, DIMENSIONS), dtype=np.float32)


def score(embeddings: F32, *, seed: int) -> tuple[F64, I64]:
    """Accuracies (E,) and classes (E, W) of sampled episodes."""
    episodes = sample_episodes(
        LABELS, n_way=N_WAY, n_shot=1, n_query=N_QUERY, n_episodes=N_EPISODES, seed=seed
    )
    support, query = embeddings[episodes.support[:, :, 0]], embeddings[episodes.query]
    away = query[:, :, :, None] - support[:, None, None]  # (E, W, Q, W, D)
    ways = (away**2).sum(axis=4).argmin(axis=3)
    return (ways == np.arange(N_WAY)[:, None]).mean(axis=(1, 2)), episodes.classes


def exact_accuracy(embeddings: F32) -> float:
    """The 5-way 1-shot accuracy of 1-NN over all episodes that there are.

    A query and a support of its class are all pairs; the query is right where the supports of the four other
    classes lie farther off. With F(b) the share of class b that does, that is the mean over all fours of
    other classes of the product of their F: an elementary symmetric polynomial.
    """
    x = embeddings.astype(np.float64)
    squares = (x**2).sum(axis=1)
    distances = squares[:, None] - 2 * x @ x.T + squares
    by_class = distances.reshape(N_CLASSES, N_IMAGES, N_CLASSES, N_IMAGES)
    own = by_class[np.arange(N_CLASSES), :, np.arange(N_CLASSES)]  # (C, M, M)
    own = own[:, ~np.eye(N_IMAGES, dtype=bool)].reshape(N_CLASSES, N_IMAGES, N_IMAGES - 1)
    polynomial = np.zeros((N_WAY, *own.shape))  # elementary symmetric polynomials of degree 0..4
    polynomial[0] = 1
    for other in range(N_CLASSES):
        nearer = (by_class[:, :, other, None, :] <= own[..., None]).sum(axis=3)  # (C, M, M - 1)
        farther = 1 - nearer / N_IMAGES
        farther[other] = 0  # the query's own class is no rival
        polynomial[1:] += farther * polynomial[:-1]
    return float(polynomial[-1].mean() / comb(N_CLASSES - 1, N_WAY - 1))


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    found = simulate(repetitions)
    over_episodes, over_classes = (100 * width for width in found.half_widths)
    print(
        f"{repetitions} repetitions of {N_CLASSES} classes, {N_EPISODES:,} episodes, {N_WAY}-way 1-shot 1-NN"
    )
    print(f"closed interval  ± {over_episodes:4.2f}  covers the accuracy on these images   ", end="")
    print(f"{found.closed_of_these_images:.1%}")
    print(f"closed interval  ± {over_episodes:4.2f}  covers the accuracy over new classes  ", end="")
    print(f"{found.closed_of_new_classes:.1%}")
    print(f"class interval   ± {over_classes:4.2f}  covers the accuracy over new classes  ", end="")
    print(f"{found.classes_of_new_classes:.1%}  ({found.flagged:.1%} flagged)")


if __name__ == "__main__":
    main()
