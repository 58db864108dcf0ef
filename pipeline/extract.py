"""Stage 1: a data set and an encoder to a feature store, each image encoded once."""

import hashlib
import platform
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import numpy as np

from fsnl.cache import hdf5
from fsnl.cache.arrays import F32, U64
from fsnl.cache.errors import FormatError, MismatchError, OccupiedError
from fsnl.cache.fingerprint import arrays_sha256, canonical_json, labels_sha256, split_fingerprint
from fsnl.cache.home import fsnl_home
from fsnl.cache.reader import FeatureStore, open_store
from fsnl.cache.schema import Json, StoreHeader
from fsnl.cache.writer import new_store
from fsnl.pipeline.cores import usable_cores
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.datasets.class_file import read_class_file
from fsnl.pipeline.datasets.download import download
from fsnl.pipeline.datasets.hygiene import hygiene_notes, watch
from fsnl.pipeline.datasets.registry import open_image_set
from fsnl.pipeline.encoders.base import Encoder
from fsnl.pipeline.encoders.batches import batch_rows
from fsnl.pipeline.encoders.registry import EncoderPlan, load_encoder, parse_encoder, plan_encoder
from fsnl.pipeline.encoders.streaming import embedded_batches
from fsnl.pipeline.encoders.weights import find_weights

# Called with split, rows done and rows in all.
Progress = Callable[[str, int, int], None]
NAMED_ROWS = 3


@dataclass(frozen=True, slots=True)
class ExtractRequest:
    """What to encode, with what.

    Attributes:
        dataset: one of `fsnl.pipeline.datasets.registry.DATASETS`.
        root: its folder, None for an embedded data set.
        splits: the splits to have in the store, each once.
        classes: a file of class names to keep, None for all.
        encoder: its specification, `pixels` or `torchvision:NAME`.
        weights: `random:SEED` or a file, None where the encoder has none.
        image_size: side in pixels, None for the data set's or the encoder's own.
        precision: `fp32`, `bf16` or `fp16`.
        labels_used: labels that the weights' training saw, None where unknown.
        csv: a list of the images of `folder`, None for class folders.
        skip_unreadable: leave out images that cannot be decoded, instead of refusing them.
        download: get the data set from its publisher where it is not there yet.
    """

    dataset: str = "digits"
    root: Path | None = None
    splits: tuple[str, ...] = ("test",)
    classes: Path | None = None
    encoder: str = "pixels"
    weights: str | None = None
    image_size: int | None = None
    precision: str = "fp32"
    labels_used: int | None = None
    csv: Path | None = None
    skip_unreadable: bool = False
    download: bool = False


@dataclass(frozen=True, slots=True)
class Running:
    """How to run: what may colour the last digits of the embeddings, and no more.

    Attributes:
        device: `auto`, `cpu`, `cuda`, `cuda:INDEX` or `mps`.
        batch_size: images per forward pass, None for what suits the encoder, its image size and device.
        workers: threads that decode, and on a CPU encode; None for one per core.
    """

    device: str = "auto"
    batch_size: int | None = None
    workers: int | None = None


def extract(
    request: ExtractRequest,
    *,
    out: Path | None = None,
    force: bool = False,
    running: Running | None = None,
    note: Callable[[str], None] = lambda text: None,
    progress: Progress = lambda split, done, total: None,
) -> Path:
    """Encode the splits that the store does not hold yet.

    Args:
        request: what to encode, with what.
        out: the store, None for one named after the request in `fsnl_home()`.
        force: replace what lies at `out`, whatever it is.
        running: device, batch size, decoding threads.
        note: takes lines for the user.
        progress: told of rows done.

    Returns:
        The store's path. An interrupted run leaves nothing there, or what was there before.

    Raises:
        DatasetError, EncoderError: images or an encoder that cannot be used.
        MismatchError: a store at `out` that was made with something else; it names each field.
        OccupiedError: something else at `out`.
        WriteError: no permission, no space.
    """
    running = running or Running()
    sets = _open_sets(request)
    path = out or _default_path(request)
    records = {s.listing.split: _record(request, s) for s in sets}
    existing = None if force else _existing(path)
    if existing is not None and all(existing.requests.get(k) == v for k, v in records.items()):
        note(f"{path} is complete: {', '.join(records)} extracted before")
        return path
    plan = _plan(request, sets)
    missing = sets
    if existing is not None:
        _check_same(existing, plan, sets)
        missing = [s for s in sets if s.listing.split not in existing.splits]
        if not missing:
            note(f"{path} is complete: {', '.join(records)} extracted before")
            return path
    if out is None:
        path.parent.mkdir(parents=True, exist_ok=True)
    hdf5.check_vacant(path, overwrite=force or existing is not None)
    for image_set in missing:
        note(f"{image_set.listing.split}: {image_set.found}")
    encoder = load_encoder(plan, device=running.device)
    note(_described(encoder))
    header = StoreHeader(
        dataset=sets[0].info,
        encoder=encoder.info,
        preprocessing=encoder.preprocessing,
        environment=_environment(encoder, running),
    )
    with new_store(path, header, overwrite=force or existing is not None) as store:
        for split in existing.splits if existing is not None else ():
            store.copy_split(path, split)
        for image_set in missing:
            watched, constant = watch(image_set)
            health = _Health(image_set, constant=constant)
            batches = _embedded(watched, encoder, running=running, progress=progress, health=health)
            split = image_set.listing.split
            store.add_split(image_set.listing, batches, request=records[split])
            health.report(note)
    return path


def _open_sets(request: ExtractRequest) -> list[ImageSet]:
    sets = []
    downloads = fsnl_home() / "data"
    for split in request.splits:
        if request.download:
            download(request.dataset, root=request.root or downloads, split=split)
        names = None if request.classes is None else read_class_file(request.classes, split=split)
        image_set = open_image_set(
            request.dataset,
            root=request.root,
            split=split,
            class_names=names,
            csv=request.csv,
            skip_unreadable=request.skip_unreadable,
            downloads=downloads,
        )
        sets.append(image_set)
    return sets


def _plan(request: ExtractRequest, sets: Sequence[ImageSet]) -> EncoderPlan:
    """One plan for all splits: a store has one preprocessing."""
    plans = [
        plan_encoder(
            request.encoder,
            image_set,
            weights=request.weights,
            image_size=request.image_size,
            labels_used=request.labels_used,
            precision=request.precision,
        )
        for image_set in sets
    ]
    for image_set, plan in zip(sets, plans, strict=True):
        if plan.preprocessing != plans[0].preprocessing:
            sizes = f"{plans[0].preprocessing.crop} and {plan.preprocessing.crop} px"
            names = f"{sets[0].listing.split!r} and {image_set.listing.split!r}"
            msg = f"splits {names} would be encoded at {sizes}; give one size with --image-size"
            raise MismatchError(request.root or Path(request.dataset), msg)
    return plans[0]


def _record(request: ExtractRequest, image_set: ImageSet) -> dict[str, Json]:
    """What is asked for one split, in a form that is the same when the same is asked again.

    Folders are left out, so that data may move; so is what changes no embedding.
    """
    listing = image_set.listing
    weights = None
    if parse_encoder(request.encoder) is not None:
        weights = find_weights(request.weights, labels_used=request.labels_used, encoder=request.encoder)
    return {
        "dataset": image_set.info.name,
        "split": listing.split,
        "encoder": request.encoder,
        "weights": request.weights if weights is None else weights.name,
        "weights_sha256": None if weights is None else weights.sha256,
        "image_size": request.image_size,
        "precision": request.precision,
        "labels_used": request.labels_used,
        "n_images": len(listing.image_ids),
        "labels_sha256": labels_sha256(listing.class_names, listing.image_ids, listing.labels),
        "source_sizes_sha256": arrays_sha256((listing.source_sizes,)),
    }


def _default_path(request: ExtractRequest) -> Path:
    """A file name that the same request, for whatever splits, finds again."""
    identity = asdict(request)
    del identity["splits"], identity["download"]
    for name in ("root", "classes", "csv"):
        identity[name] = None if identity[name] is None else str(identity[name].resolve())
    digest = hashlib.sha256(canonical_json(identity).encode()).hexdigest()[:8]
    slug = re.sub(r"[^A-Za-z0-9]+", "-", request.encoder).strip("-")[:60]
    return fsnl_home() / f"{request.dataset}-{slug}-{digest}.h5"


def _existing(path: Path) -> FeatureStore | None:
    if not path.exists():
        return None
    try:
        return open_store(path)
    except FormatError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise OccupiedError(path, f"{reason}; use another --out, or --force to replace it") from error


def _check_same(store: FeatureStore, plan: EncoderPlan, sets: Sequence[ImageSet]) -> None:
    """Refuse to mix: name every field in which store and request differ."""
    header = StoreHeader(
        dataset=sets[0].info,
        encoder=plan.info,
        preprocessing=plan.preprocessing,
        environment=store.header.environment,
    )
    old, new = _flat(asdict(store.header)), _flat(asdict(header))
    differ = [
        f"{name} is {old.get(name)}, asked {new.get(name)}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
    for image_set in sets:
        split = image_set.listing.split
        known = split in store.splits
        if not differ and known and split_fingerprint(header, image_set.listing) != store.fingerprints[split]:
            differ.append(_listing_difference(store, image_set))
    if differ:
        advice = "use another --out, or --force to replace it"
        raise MismatchError(store.path, f"made for something else: {'; '.join(differ)}; {advice}")


def _listing_difference(store: FeatureStore, image_set: ImageSet) -> str:
    """In words, how the images of a split differ from those that were encoded."""
    listing = image_set.listing
    stored = store.features(listing.split)
    before, now = set(stored.image_ids), set(listing.image_ids)
    for word, names in (("added", now - before), ("missing", before - now)):
        if names:
            return f"split {listing.split!r}: {len(names)} images {word}, {min(names)!r} first"
    if stored.class_names != listing.class_names or not np.array_equal(stored.labels, listing.labels):
        return f"split {listing.split!r}: classes or labels changed"
    return f"split {listing.split!r}: image files changed in size"


def _flat(record: dict[str, Json], prefix: str = "") -> dict[str, Json]:
    flat: dict[str, Json] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _described(encoder: Encoder) -> str:
    prepared = encoder.preprocessing
    resized = "" if prepared.resize == prepared.crop else f" (resized to {prepared.resize})"
    weights = "" if encoder.info.weights == "none" else f", weights {encoder.info.weights}"
    size = f"{prepared.crop} px{resized}"
    return f"encoder {encoder.info.name}{weights}, {size}, {encoder.info.precision}, on {encoder.device}"


def _environment(encoder: Encoder, running: Running) -> dict[str, str | int | None]:
    """What only colours the last digits of the embeddings."""
    libraries = ["fsnl", "numpy", "Pillow"]
    if parse_encoder(encoder.info.name) is not None:
        libraries += ["torch", "torchvision"]
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        **{name.lower(): metadata.version(name) for name in libraries},
        "device": encoder.device,
        "batch_size": running.batch_size or encoder.batch_size,
    }


def _embedded(
    image_set: ImageSet, encoder: Encoder, *, running: Running, progress: Progress, health: "_Health"
) -> Iterator[tuple[F32, U64]]:
    """Batches of embeddings with the digests of their images, in row order."""
    workers = usable_cores() if running.workers is None else running.workers
    total = len(image_set.listing.image_ids)
    batches = batch_rows(range(total), batch_size=running.batch_size or encoder.batch_size)
    done = 0
    for embeddings, digests in embedded_batches(image_set, encoder, batches=batches, workers=workers):
        health.look(embeddings, digests, first=done)
        done += len(embeddings)
        progress(image_set.listing.split, done, total)
        yield embeddings, digests


class _Health:
    """Rows that no classifier can use, and the time taken, noticed while a split streams by."""

    def __init__(self, image_set: ImageSet, *, constant: list[int]) -> None:
        self._listing = image_set.listing
        self._constant = constant
        self._digests: list[U64] = []
        self._began = time.monotonic()
        self._bad: dict[str, list[int]] = {"not finite": [], "all zero": []}

    def look(self, embeddings: F32, digests: U64, *, first: int) -> None:
        """(B, D) float32 and (B,) uint64, the rows from `first` on."""
        self._digests.append(digests)
        finite = np.isfinite(embeddings).all(axis=1)
        zero = ~embeddings.any(axis=1)
        self._bad["not finite"] += (first + np.flatnonzero(~finite)).tolist()
        self._bad["all zero"] += (first + np.flatnonzero(zero)).tolist()

    def report(self, note: Callable[[str], None]) -> None:
        """What was done, and each kind of bad row with its first images."""
        n_images = len(self._listing.image_ids)
        seconds = time.monotonic() - self._began
        rate = n_images / max(seconds, 1e-9)
        note(f"{self._listing.split}: {n_images:,} images in {seconds:.1f} s, {rate:,.0f} images/s")
        for kind, rows in self._bad.items():
            if rows:
                names = ", ".join(repr(self._listing.image_ids[row]) for row in rows[:NAMED_ROWS])
                more = ", ..." if len(rows) > NAMED_ROWS else ""
                note(f"warning: {len(rows)} embeddings are {kind}: {names}{more}")
        digests = np.concatenate(self._digests)
        for line in hygiene_notes(self._listing, digests=digests, constant=self._constant):
            note(line)
