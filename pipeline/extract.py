"""Stage 1: a data set and an encoder to a feature store, each image encoded once."""

import hashlib
import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from fsnl.cache import hdf5
from fsnl.cache.errors import MismatchError
from fsnl.cache.fingerprint import arrays_sha256, canonical_json, labels_sha256
from fsnl.cache.home import fsnl_home
from fsnl.cache.schema import DatasetInfo, Json, StoreHeader
from fsnl.pipeline.cores import usable_cores
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.datasets.class_file import read_class_file
from fsnl.pipeline.datasets.download import download
from fsnl.pipeline.datasets.registry import open_image_set
from fsnl.pipeline.encoders.base import Encoder
from fsnl.pipeline.encoders.describe import described
from fsnl.pipeline.encoders.pooling import POOLED, Pool
from fsnl.pipeline.encoders.registry import EncoderPlan, load_encoder, plan_encoder
from fsnl.pipeline.encoders.specs import parse_spec
from fsnl.pipeline.encoders.weights import name_weights
from fsnl.pipeline.sharding.existing import existing_store, is_complete
from fsnl.pipeline.sharding.ranks import Rank, this_rank
from fsnl.pipeline.sharding.run import follow, held_folder, lead
from fsnl.pipeline.sharding.work import SHARD_ROWS, Progress, Work


@dataclass(frozen=True, slots=True)
class ExtractRequest:
    """What to encode, with what.

    Attributes:
        dataset: one of `fsnl.pipeline.datasets.registry.DATASETS`.
        root: its folder, None for an embedded data set.
        splits: the splits to have in the store, each once.
        classes: a file of class names to keep, None for all.
        encoder: its specification, see `fsnl.pipeline.encoders.specs.ENCODER_KINDS`.
        weights: `random:SEED`, `default` or a file, None where the encoder needs none.
        image_size: side in pixels, None for the data set's or the encoder's own.
        precision: `fp32`, `bf16` or `fp16`.
        labels_used: labels that the weights' training saw, None where unknown.
        layer: `pooled`, `head`, or the name of a module of the network.
        pool: how that layer's output becomes one vector.
        csv: a list of the images of `folder`, None for class folders.
        skip_unreadable: leave out images that cannot be decoded, instead of refusing them.
        download: get the data set from its publisher where it is not there yet.
    """

    dataset: str = "digits"
    root: Path | None = None
    splits: tuple[str, ...] = ("test",)
    classes: Path | None = None
    encoder: str = "fsnl:resnet10"
    weights: str | None = None
    image_size: int | None = None
    precision: str = "fp32"
    labels_used: int | None = None
    layer: str = POOLED
    pool: Pool = "auto"
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
        shard_rows: rows that are encoded between two points from which a run can be resumed.
        take_over: go on although a run on another host seems to write the store.
    """

    device: str = "auto"
    batch_size: int | None = None
    workers: int | None = None
    shard_rows: int = SHARD_ROWS
    take_over: bool = False


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

    What is encoded is kept beside `out` until the store is whole: an interrupted call, made again, goes on.
    Called by several processes at once, as `torchrun` starts them, each encodes a part; rank 0 makes the
    store, and the others may return before it is there.

    Args:
        request: what to encode, with what.
        out: the store, None for one named after the request in `fsnl_home()`.
        force: replace what lies at `out`, whatever it is.
        running: device, batch size, decoding threads.
        note: takes lines for the user.
        progress: told of rows done.

    Returns:
        The store's path. An interrupted call leaves nothing there, or what was there before.

    Raises:
        DatasetError, EncoderError: images or an encoder that cannot be used.
        MismatchError: a store at `out` that was made with something else; it names each field.
        OccupiedError: something else at `out`.
        HeldError: another run is writing it.
        WriteError: no permission, no space.
    """
    running, rank = running or Running(), this_rank()
    if not rank.leads:  # one voice is enough
        note, progress = _silent, _silent
    sets = _open_sets(request)
    path = out or _default_path(request)
    records = {s.listing.split: _record(request, s) for s in sets}
    existing = None if force else existing_store(path)
    if is_complete(existing, records):
        note(f"{path} is complete: {', '.join(records)} extracted before")
        return path
    work = Work(
        path=path,
        sets=sets,
        requests=records,
        kept=(),
        overwrite=force,
        force=force,
        encoder=_Loader(_plan(request, sets), sets[0].info, note),
        device=running.device,
        batch_size=running.batch_size,
        shard_rows=running.shard_rows,
        workers=running.workers if running.workers is not None else max(1, usable_cores() // rank.n_local),
        note=note,
        progress=progress,
    )
    _encode_missing(work.beside(existing), rank, running=running)
    return path


def _encode_missing(work: Work, rank: Rank, *, running: Running) -> None:
    """Encode and write what is missing, as rank 0 or as another."""
    if not work.sets:
        work.note(f"{work.path} is complete: {', '.join(work.requests)} extracted before")
        return
    if not work.path.parent.exists() and work.path.parent == fsnl_home():
        work.path.parent.mkdir(parents=True, exist_ok=True)
    hdf5.check_vacant(work.path, overwrite=work.overwrite)
    if not rank.leads:
        follow(work, rank)
        return
    with held_folder(work.path, rank, take_over=running.take_over) as folder:
        if not work.force:  # as it is now that nobody else writes
            work = work.beside(existing_store(work.path))
        for image_set in work.sets:
            work.note(f"{image_set.listing.split}: {image_set.found}")
        if work.sets:
            lead(work, folder, rank)


def _silent(*_: object) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True)
class _Loader:
    """The encoder that was planned, loaded when it is needed."""

    plan: EncoderPlan
    dataset: DatasetInfo
    note: Callable[[str], None]

    @property
    def header(self) -> StoreHeader:
        """Of a store of its embeddings, before the environment is known."""
        return StoreHeader(self.dataset, self.plan.info, self.plan.preprocessing, environment={})

    def load(self, device: str) -> tuple[Encoder, StoreHeader]:
        encoder = load_encoder(self.plan, device=device, note=self.note)
        for line in described(encoder):
            self.note(line)
        header = StoreHeader(self.dataset, encoder.info, encoder.preprocessing, _environment(encoder))
        return encoder, header


def _open_sets(request: ExtractRequest) -> list[ImageSet]:
    sets = []
    downloads = fsnl_home() / "data"
    for split in request.splits:
        if request.download:
            root = request.root or downloads
            download(request.dataset, root=root, split=split, leads=this_rank().leads)
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
            layer=request.layer,
            pool=request.pool,
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
    spec = parse_spec(request.encoder)
    weights = name_weights(spec, request.weights, labels_used=request.labels_used)
    return {
        "dataset": image_set.info.name,
        "split": listing.split,
        "encoder": spec.name,
        "weights": weights.name,
        "weights_sha256": weights.sha256,
        "layer": request.layer,
        "pool": request.pool,
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


def _environment(encoder: Encoder) -> dict[str, str | int | None]:
    """What only colours the last digits of the embeddings."""
    libraries = ["fsnl", "numpy", "Pillow"]
    kind = encoder.info.name.partition(":")[0]
    if kind != "pixels":
        libraries += ["torch", "torchvision", *(["timm"] if kind == "timm" else [])]
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        **{name.lower(): metadata.version(name) for name in libraries},
        "device": encoder.device,
    }
