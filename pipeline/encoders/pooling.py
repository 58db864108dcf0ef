"""The words of `--layer` and `--pool`, without torch."""

from typing import Literal, TypeAlias, get_args

Pool: TypeAlias = Literal["auto", "mean", "max", "token", "flatten"]

POOLS: tuple[Pool, ...] = get_args(Pool)

# The feature before the classifier, and the projection head of self-supervised training.
POOLED, HEAD = "pooled", "head"


def described_layer(layer: str, *, pool: Pool) -> str:
    """Layer and pooling in one word, as it is stored: `layer3`, or `layer3, max` where that was asked for."""
    return layer if pool == "auto" else f"{layer}, {pool}"
