"""Rows that no classifier can use, noticed while the embeddings of a split stream by."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from fsnl.cache.arrays import F32, U64
from fsnl.cache.schema import Listing

N_NAMED = 3


@dataclass(frozen=True, slots=True)
class RowHealth:
    """What was seen of a split.

    Attributes:
        not_finite: rows with NaN or infinity, ascending.
        all_zero: rows of zeros alone, likewise.
        digests: (B,) uint64 image digests, batch by batch.
    """

    not_finite: list[int] = field(default_factory=list)
    all_zero: list[int] = field(default_factory=list)
    digests: list[U64] = field(default_factory=list)

    def seen(self, batches: Iterable[tuple[F32, U64]]) -> Iterator[tuple[F32, U64]]:
        """The same batches, in row order, looked at as they pass."""
        first = 0
        for embeddings, digests in batches:
            self.not_finite.extend((first + np.flatnonzero(~np.isfinite(embeddings).all(axis=1))).tolist())
            self.all_zero.extend((first + np.flatnonzero(~embeddings.any(axis=1))).tolist())
            self.digests.append(digests)
            first += len(embeddings)
            yield embeddings, digests

    def warnings(self, listing: Listing) -> list[str]:
        """A line for each kind of bad row that there is, with its first images."""
        lines = []
        for kind, rows in (("not finite", self.not_finite), ("all zero", self.all_zero)):
            if rows:
                names = ", ".join(repr(listing.image_ids[row]) for row in rows[:N_NAMED])
                more = ", ..." if len(rows) > N_NAMED else ""
                lines.append(f"warning: {len(rows)} embeddings are {kind}: {names}{more}")
        return lines
