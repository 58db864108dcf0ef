"""What one run's stored predictions say about classes and episodes; no features, no encoder."""

from dataclasses import dataclass

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform
from scipy.special import stdtrit

from fsnl.cache.arrays import F64, I64
from fsnl.cache.result_file import EpisodeSet, StoredRun
from fsnl.pipeline.statistics import CONFIDENCE

# A pair of classes is ranked where each was asked for this often in presence of the other.
FEWEST_QUERIES = 30


@dataclass(frozen=True, slots=True)
class Reanalysis:
    """One run by class and by episode; C counts the classes that occur in its episodes.

    Attributes:
        class_names: C names, in the order of the store.
        n_episodes: (C,) int64, episodes that hold the class.
        accuracy: (C,) share of the class's queries that were answered right.
        half_width: (C,) of its 95 % interval over those episodes (Student's t); NaN for one episode.
        confusion: (C, C) share of row's queries that were answered as column, of those asked in episodes that
            hold both; NaN where there were none. The diagonal is the accuracy.
        n_asked: (C, C) int64, how many queries those were.
        episode_accuracy: (E,) share of right answers.
    """

    class_names: tuple[str, ...]
    n_episodes: I64
    accuracy: F64
    half_width: F64
    confusion: F64
    n_asked: I64
    episode_accuracy: F64


@dataclass(frozen=True, slots=True)
class ClassPair:
    """Two classes that are taken for each other.

    Attributes:
        first, second: positions in `Reanalysis.class_names`.
        first_as_second: share of the first's queries that were answered as the second.
        second_as_first: the other way round.
    """

    first: int
    second: int
    first_as_second: float
    second_as_first: float


def reanalyse(run: StoredRun, episode_set: EpisodeSet) -> Reanalysis:
    """Accuracies per class and episode, and which classes are taken for which.

    Args:
        run: of a result file.
        episode_set: the one that it names.
    """
    episodes = episode_set.episodes
    occurring, ways = np.unique(episodes.classes, return_inverse=True)
    ways = ways.reshape(episodes.classes.shape)
    shares = run.correct / episodes.n_query  # (E, W)
    confusion, n_asked = _confusion(run, ways, n_classes=len(occurring))
    n_episodes = np.bincount(ways.ravel())
    accuracy = np.bincount(ways.ravel(), weights=shares.ravel()) / n_episodes
    return Reanalysis(
        class_names=tuple(episode_set.class_names[c] for c in occurring),
        n_episodes=n_episodes,
        accuracy=accuracy,
        half_width=_half_widths(shares, ways, means=accuracy, counts=n_episodes),
        confusion=confusion,
        n_asked=n_asked,
        episode_accuracy=shares.mean(axis=1),
    )


def _half_widths(shares: F64, ways: I64, *, means: F64, counts: I64) -> F64:
    squares = np.bincount(ways.ravel(), weights=((shares - means[ways]) ** 2).ravel())
    widths = np.full(len(means), np.nan)
    many = counts > 1
    variances = squares[many] / (counts[many] - 1)
    widths[many] = stdtrit(counts[many] - 1, (1 + CONFIDENCE) / 2) * np.sqrt(variances / counts[many])
    return widths


def _confusion(run: StoredRun, ways: I64, *, n_classes: int) -> tuple[F64, I64]:
    n_episodes, _, n_query = run.predictions.shape
    in_episode = np.arange(n_episodes)[:, None, None]
    answers = ways[in_episode, run.predictions]  # (E, W, Q) classes answered
    pairs = (ways[:, :, None] * n_classes + answers).ravel()
    answered = np.bincount(pairs, minlength=n_classes**2).reshape(n_classes, n_classes)
    together = (ways[:, :, None] * n_classes + ways[:, None, :]).ravel()  # E * W * W
    n_asked = n_query * np.bincount(together, minlength=n_classes**2).reshape(n_classes, n_classes)
    share = np.full(answered.shape, np.nan)
    np.divide(answered, n_asked, out=share, where=n_asked > 0)
    return share, n_asked


def hardest_pairs(found: Reanalysis, *, n_most: int) -> list[ClassPair]:
    """The pairs of classes taken for each other most often, the worst first; both directions count alike.

    Args:
        found: one run.
        n_most: how many at most. Pairs that met in too few queries are left out.
    """
    first, second = np.triu_indices(len(found.class_names), k=1)
    often = np.minimum(found.n_asked[first, second], found.n_asked[second, first]) >= FEWEST_QUERIES
    first, second = first[often], second[often]
    there, back = found.confusion[first, second], found.confusion[second, first]
    worst = np.argsort(-(there + back), kind="stable")[:n_most]
    return [ClassPair(int(first[i]), int(second[i]), float(there[i]), float(back[i])) for i in worst]


def similar_classes_together(found: Reanalysis) -> I64:
    """An order of the classes in which those taken for each other lie side by side.

    Returns:
        (C,) int64, positions in `found.class_names`: the leaves of average linkage on the shares of mutual
        confusion, arranged so that neighbours are close (Bar-Joseph et al. 2001).
    """
    n_classes = len(found.class_names)
    if n_classes < 3:
        return np.arange(n_classes)
    mutual = np.nan_to_num((found.confusion + found.confusion.T) / 2)
    np.fill_diagonal(mutual, 0)
    distances = mutual.max() - mutual
    np.fill_diagonal(distances, 0)
    tree = linkage(squareform(distances, checks=False), method="average", optimal_ordering=True)
    return np.asarray(leaves_list(tree), dtype=np.int64)
