"""The rows that a transform is fitted on: a split of the scored store, or of another store of its encoder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fsnl.cache.arrays import F32
from fsnl.cache.errors import MismatchError, ScoringError
from fsnl.cache.reader import FeatureStore, open_store
from fsnl.cache.schema import Features
from fsnl.pipeline.finite import check_finite
from fsnl.pipeline.transforms.base import Step
from fsnl.pipeline.transforms.chain import apply_chain, fit_chain


@dataclass(frozen=True, slots=True)
class Transformed:
    """Embeddings after a chain.

    Attributes:
        name: the chain as results show it, marked where it was fitted on the scored images.
        embeddings: (N, D') float32, finite.
    """

    name: str
    embeddings: F32


def transform(store: FeatureStore, features: Features, steps: Sequence[Step]) -> Transformed:
    """Fit a chain and apply it.

    Args:
        store: where `features` come from, and splits to fit on.
        features: the split that is scored.
        steps: from `parse_chain`.

    Raises:
        CacheError: a split or store to fit on is missing, or made by another encoder.
        ScoringError: a step that cannot be fitted, or embeddings that are not finite.
    """
    text = ",".join(step.text for step in steps) or "none"
    fitted_on = {step.source: _source(store, features, step) for step in steps if step.source is not None}
    rows = {source: found.embeddings for source, found in fitted_on.items()}
    embeddings = apply_chain(fit_chain(steps, rows), features.embeddings)
    check_finite(embeddings, features, store=store.path, after=f"after transform {text}" if steps else "")
    transductive = any(_same_images(found, features) for found in fitted_on.values())
    return Transformed(f"{text} (transductive)" if transductive else text, embeddings)


def _source(store: FeatureStore, features: Features, step: Step) -> Features:
    """The split that a step is fitted on, whole."""
    name = step.source or ""
    path, colon, split = name.rpartition(":")
    if name in store.splits or not colon:
        owner, split = store, name
    else:
        owner = open_store(path)
        _check_encoder(owner, store, step)
    if split not in owner.splits:
        have = ", ".join(owner.splits)
        hint = (
            f"write {name}:SPLIT to name one of its splits"
            if Path(name).suffix == ".h5"
            else (f"add it with fsnl-extract --split {split} --out {owner.path}, same data set and encoder")
        )
        raise MismatchError(owner.path, f"transform {step.text} needs split {split!r}, it has {have}; {hint}")
    if owner is store and split == features.split:
        found = features
    else:
        found = owner.features(split)
    check_finite(found.embeddings, found, store=owner.path)
    if found.embeddings.shape[1] != features.embeddings.shape[1]:
        dims = f"{found.embeddings.shape[1]} dimensions, not {features.embeddings.shape[1]}"
        msg = f"transform {step.text}: split {split!r} of {owner.path} has {dims}"
        raise ScoringError(msg)
    return found


def _same_images(found: Features, features: Features) -> bool:
    same_labels = found.labels_sha256 == features.labels_sha256
    return found is features or (same_labels and np.array_equal(found.image_digests, features.image_digests))


def _check_encoder(owner: FeatureStore, store: FeatureStore, step: Step) -> None:
    """Features of two encoders have nothing to do with each other."""
    ours, theirs = store.header, owner.header
    fields = ("name", "weights", "weights_sha256", "layer", "precision")
    pairs = [(field, getattr(theirs.encoder, field), getattr(ours.encoder, field)) for field in fields]
    pairs.append(("preprocessing", theirs.preprocessing, ours.preprocessing))
    differing = [f"{field} {a} instead of {b}" for field, a, b in pairs if a != b]
    if differing:
        reason = f"transform {step.text} needs the encoder of {store.path}; this has {'; '.join(differing)}"
        raise MismatchError(owner.path, reason)
