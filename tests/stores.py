"""Small feature stores, in memory or made through the writer, for tests of what comes after extraction."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fsnl.cache.arrays import F32, I64
from fsnl.cache.fingerprint import labels_sha256
from fsnl.cache.reader import FeatureStore
from fsnl.cache.schema import (
    DatasetInfo,
    EncoderInfo,
    Episodes,
    Features,
    LabelsUsed,
    Listing,
    Preprocessing,
    RunSummary,
    SpentLabels,
    StoreHeader,
)
from fsnl.cache.writer import new_store
from fsnl.pipeline.score import score

PREPROCESSING = Preprocessing(
    resize=32,
    crop=32,
    interpolation="bilinear",
    antialias=True,
    mean=(0.0, 0.0, 0.0),
    std=(1.0, 1.0, 1.0),
)


def header(
    *, encoder: str = "tests", labels_used: LabelsUsed | None = None, dataset: str = "folder"
) -> StoreHeader:
    """What a store says of its encoder, which here is none: the embeddings are given."""
    info = EncoderInfo(
        name=encoder,
        weights="none",
        weights_sha256=None,
        layer="pooled",
        precision="fp32",
        labels_used=labels_used or LabelsUsed(train=0, val=0),
    )
    return StoreHeader(
        dataset=DatasetInfo(dataset, native_size=None),
        encoder=info,
        preprocessing=PREPROCESSING,
        environment={"numpy": np.__version__, "device": "cpu", "batch_size": 3},
    )


def listing(
    labels: I64, *, split: str = "test", class_names: Sequence[str] = (), image_ids: Sequence[str] = ()
) -> Listing:
    """A listing of (N,) labels; names are made up where none are given."""
    names = tuple(class_names) or tuple(f"class-{c:03d}" for c in range(int(labels.max(initial=-1)) + 1))
    return Listing(
        split=split,
        class_names=names,
        labels=labels,
        image_ids=tuple(image_ids) or tuple(f"{names[c]}/{row:05d}.png" for row, c in enumerate(labels)),
        source_sizes=np.arange(len(labels), dtype=np.int64),
    )


def write_store(
    path: Path,
    embeddings: npt.NDArray[np.floating],
    labels: I64,
    *,
    split: str = "test",
    encoder: str = "tests",
    labels_used: LabelsUsed | None = None,
    class_names: Sequence[str] = (),
) -> Path:
    """A feature store of one split, from (N, D) embeddings and (N,) labels, in batches of three rows."""
    rows = listing(labels, split=split, class_names=class_names)
    digests = np.arange(len(labels), dtype=np.uint64)
    batches = (
        (embeddings[i : i + 3].astype(np.float32), digests[i : i + 3]) for i in range(0, len(labels), 3)
    )
    with new_store(path, header(encoder=encoder, labels_used=labels_used), overwrite=True) as store:
        store.add_split(rows, batches, request={})
    return path


def clusters(*, n_classes: int, n_per_class: int, dim: int, spread: float = 1.0, seed: int = 0) -> F32:
    """Embeddings that classifiers get partly right: a random centre for each class, and noise around it.

    Returns:
        (n_classes * n_per_class, dim) float32, class by class.
    """
    rng = np.random.default_rng(seed)
    centres = np.repeat(rng.normal(size=(n_classes, dim)), n_per_class, axis=0)
    return np.asarray(centres + spread * rng.normal(size=centres.shape), dtype=np.float32)


def even_labels(*, n_classes: int, n_per_class: int) -> I64:
    """(n_classes * n_per_class,) int64: 0, 0, ..., 1, 1, ..."""
    return np.repeat(np.arange(n_classes, dtype=np.int64), n_per_class)


def in_memory(embeddings: F32, labels: I64) -> tuple[FeatureStore, Features]:
    """What opening and reading a store of (N, D) embeddings and (N,) labels would give, without a file."""
    rows = listing(labels)
    digest = labels_sha256(rows.class_names, rows.image_ids, labels)
    features = Features(
        split="test",
        embeddings=embeddings,
        labels=labels,
        class_names=rows.class_names,
        image_ids=rows.image_ids,
        image_digests=np.arange(len(labels), dtype=np.uint64),
        labels_sha256=digest,
    )
    store = FeatureStore(
        path=Path("memory.h5"),
        header=header(),
        splits=("test",),
        requests={"test": {}},
        fingerprints={"test": ""},
    )
    return store, features


def answers(embeddings: F32, labels: I64, episodes: Episodes, classifier: str) -> I64:
    """The ways that a classifier answers, as scoring gets them: (E, W, Q) int64."""
    (run,) = score(*in_memory(embeddings, labels), [episodes], classifiers=[classifier], n_threads=1)
    return run.predictions.astype(np.int64)


def summary(**changes: Any) -> RunSummary:
    """A plausible line of results, with some fields changed."""
    base = RunSummary(
        store="a.h5",
        dataset="folder",
        split="test",
        encoder="tests",
        embedding_dim=8,
        image_size=32,
        n_way=2,
        n_shot=1,
        n_query=4,
        n_episodes=3,
        seed=0,
        sampling="with replacement",
        labels_sha256="a",
        queries_sha256="b",
        episodes_sha256="c",
        classifier="1nn",
        transform="none",
        accuracy=0.5,
        total_correct=12,
        total_queries=24,
        sd=0.1,
        ci95=0.2,
        ci95_reason=None,
        ci95_class=None,
        ci95_class_reason="two classes",
        labels_used=SpentLabels(0, 0, 2),
        seconds=0.1,
    )
    return replace(base, **changes)
