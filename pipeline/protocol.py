"""Published evaluation protocols, as the runs that they consist of."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Protocol:
    """Episodes, and for each number of shots the classifiers, all after one transform.

    Attributes:
        n_way, n_query, n_episodes: of every run.
        transform: a chain.
        classifiers: names, by n_shot.
    """

    n_way: int
    n_query: int
    n_episodes: int
    transform: str
    classifiers: Mapping[int, tuple[str, ...]]


# What the released code of Bharti et al. 2020 does. It differs from the paper's text: features are
# standardised by the train split; attention answers with the class of the single largest weight, not of the
# largest sum; and its "centroid" rows are the nearest class mean, and the mean of unit vectors, which is not
# brought to length 1 again.
BHARTI_2020 = Protocol(
    n_way=5,
    n_query=15,
    n_episodes=10_000,
    transform="zscore:train",
    classifiers={
        1: ("1nn", "attention-max"),
        5: ("1nn", "attention-max", "prototype", "mean-cosine"),
    },
)
PROTOCOLS: Mapping[str, Protocol] = {"bharti2020": BHARTI_2020}
