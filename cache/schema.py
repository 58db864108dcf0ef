"""The values that pass between the stages and their files: plain, frozen, free of h5py and torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fsnl.cache.arrays import F32, I64, U64

FEATURES_FORMAT = "fsnl.features"
EPISODES_FORMAT = "fsnl.episodes"
RESULTS_FORMAT = "fsnl.results"
FORMAT_VERSION = 1

Interpolation: TypeAlias = Literal["nearest", "bilinear", "bicubic", "lanczos"]
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """Which images a store was made from.

    Attributes:
        name: `digits`, `folder`, `miniimagenet`, ...
        native_size: side in pixels of the benchmark's own square images, None where there is no such size.
    """

    name: str
    native_size: int | None


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """What happens to a decoded RGB image before the network, as data.

    The shorter side is resized to `resize` pixels (left alone where it already is that long), then the
    centre `crop` x `crop` is cut out, divided by 255, and `(x - mean) / std` taken per channel.
    """

    resize: int
    crop: int
    interpolation: Interpolation
    antialias: bool
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class LabelsUsed:
    """Labels an encoder's training saw, per split; None is unknown, which is not 0."""

    train: int | None
    val: int | None


@dataclass(frozen=True, slots=True)
class EncoderInfo:
    """Which encoder a store was made with: what decides its embeddings.

    Attributes:
        name: the specification as the user gives it, `pixels` or `torchvision:resnet18`.
        weights: `none`, `random:SEED`, or the file's name (not its folder).
        weights_sha256: hex digest of the weights file, None where there is none.
        layer: the module whose output is stored, `pooled` for the feature before the classifier.
        precision: `fp32`, `bf16` or `fp16` arithmetic; what is stored is float32 always.
        labels_used: what its training cost in labels.
    """

    name: str
    weights: str
    weights_sha256: str | None
    layer: str
    precision: str
    labels_used: LabelsUsed


@dataclass(frozen=True, slots=True)
class StoreHeader:
    """What all splits of one feature store have in common.

    Attributes:
        dataset: which images.
        encoder: which network.
        preprocessing: how images were prepared for it; None where that is unknown (imported features).
        environment: what only colours the last digits: library versions, device, batch size, threads.
    """

    dataset: DatasetInfo
    encoder: EncoderInfo
    preprocessing: Preprocessing | None
    environment: Mapping[str, str | int | None]


@dataclass(frozen=True, slots=True)
class Listing:
    """What one split holds, before any pixel is read.

    Attributes:
        split: its name.
        class_names: C names, sorted by code point; class c is `class_names[c]`.
        labels: (N,) int64 in 0..C-1, ascending.
        image_ids: N stable names, ascending within a class.
        source_sizes: (N,) int64, bytes (or pixels, for arrays) of each image's source.
    """

    split: str
    class_names: tuple[str, ...]
    labels: I64
    image_ids: tuple[str, ...]
    source_sizes: I64


@dataclass(frozen=True, slots=True)
class Features:
    """One split of a feature store, in memory or mapped.

    Attributes:
        split: its name.
        embeddings: (N, D) float32, raw encoder output.
        labels: (N,) int64 in 0..C-1.
        class_names: C names.
        image_ids: N names.
        image_digests: (N,) uint64, see `fsnl.cache.fingerprint.image_digest`.
        labels_sha256: hex digest of class names, image ids and labels.
    """

    split: str
    embeddings: F32
    labels: I64
    class_names: tuple[str, ...]
    image_ids: tuple[str, ...]
    image_digests: U64
    labels_sha256: str


@dataclass(frozen=True, slots=True)
class Episodes:
    """Few-shot episodes (tasks) as index arrays over the rows of one split.

    Attributes:
        classes: (E, W) int64, the class of each way.
        support: (E, W, K) int64 rows; the paper calls them the key set.
        query: (E, W, Q) int64 rows.
        seed: what they were drawn from.
        sampler: name and version of the drawing rule.
        sampling: `with replacement` (an image may serve in many episodes) or `without replacement`.

    Raises:
        ValueError: the three arrays do not fit each other.
    """

    classes: I64
    support: I64
    query: I64
    seed: int
    sampler: str
    sampling: str

    def __post_init__(self) -> None:
        if (self.classes.ndim, self.support.ndim, self.query.ndim) != (2, 3, 3):
            msg = "episodes need classes (E, W), support (E, W, K) and query (E, W, Q)"
            raise ValueError(msg)
        if not self.classes.shape == self.support.shape[:2] == self.query.shape[:2]:
            shapes = f"{self.classes.shape}, {self.support.shape}, {self.query.shape}"
            msg = f"classes, support and query differ in episodes or ways: {shapes}"
            raise ValueError(msg)

    @property
    def n_episodes(self) -> int:
        return int(self.classes.shape[0])

    @property
    def n_way(self) -> int:
        return int(self.classes.shape[1])

    @property
    def n_shot(self) -> int:
        return int(self.support.shape[2])

    @property
    def n_query(self) -> int:
        return int(self.query.shape[2])


@dataclass(frozen=True, slots=True)
class SpentLabels:
    """Labels that one accuracy cost; None is unknown, which is not 0.

    Attributes:
        train: seen by the encoder's training.
        val: used to select the encoder.
        support_per_episode: n_way * n_shot.
    """

    train: int | None
    val: int | None
    support_per_episode: int


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One row of results: one store, one set of episodes, one transform, one classifier.

    Attributes:
        store: the feature store, as it was named in the call.
        dataset, split, encoder: what was encoded.
        embedding_dim: D.
        image_size: side in pixels of what the encoder saw, None where unknown.
        n_way, n_shot, n_query, n_episodes, seed, sampling: the episodes.
        labels_sha256, queries_sha256, episodes_sha256: their identity; see FORMAT.md.
        classifier, transform: by name.
        accuracy: total_correct / total_queries, in [0, 1].
        sd: standard deviation of the episodes' accuracies, n - 1 in the denominator.
        ci95: half width of the 95 % interval over episodes (Student's t): closed, about these images alone;
            open, about other images of these classes, where sampling is `without replacement`.
        ci95_reason: why sd and ci95 are None.
        ci95_class: half width of the 95 % interval over classes (delete-one-class jackknife).
        ci95_class_reason: why it is None, or what makes it doubtful.
        labels_used: what the number cost.
        seconds: classification alone, wall clock, after reading and sampling.
    """

    store: str
    dataset: str
    split: str
    encoder: str
    embedding_dim: int
    image_size: int | None
    n_way: int
    n_shot: int
    n_query: int
    n_episodes: int
    seed: int
    sampling: str
    labels_sha256: str
    queries_sha256: str
    episodes_sha256: str
    classifier: str
    transform: str
    accuracy: float
    total_correct: int
    total_queries: int
    sd: float | None
    ci95: float | None
    ci95_reason: str | None
    ci95_class: float | None
    ci95_class_reason: str | None
    labels_used: SpentLabels
    seconds: float
