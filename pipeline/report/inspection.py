"""An inspection of a store, as text for people and as JSON for programs."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from fsnl.cache.schema import FORMAT_VERSION, Json, StoreHeader
from fsnl.pipeline.duplicates import ImagePlace, NearPair
from fsnl.pipeline.inspect import ImageComparison, Inspection, NearDuplicates, SplitReport
from fsnl.pipeline.report import grid

SPLIT_HEADINGS = (
    *("split", "images", "classes", "per class (min / median / max)", "dim", "norm (min / median / max)"),
    *("effective rank", "constant dims"),
)
N_SHOWN = 5
N_LISTED = 100


def to_text(found: Inspection) -> str:
    """Identity, one line per split, then what is odd."""
    odd = [
        *(["checksums: every byte is as it was written"] if found.verified else []),
        *(line for split in found.splits for line in _health_lines(split)),
        *_identical_lines(found),
        *([] if found.near is None else _near_lines(found.near)),
        *([] if found.images is None else _image_lines(found.images)),
    ]
    return grid.to_text(
        grid.Grid(
            caption=[_file_line(found), *_header_lines(found.store.header)],
            headings=SPLIT_HEADINGS,
            rows=[_split_cells(split) for split in found.splits],
            numeric=[False, *[True] * (len(SPLIT_HEADINGS) - 1)],
            notes=odd or ["nothing odd"],
        )
    )


def to_json(found: Inspection) -> str:
    """One object; what does not exist is null."""
    store = found.store
    content: Json = {
        "format": "fsnl.inspection",
        "version": 1,
        "store": str(store.path),
        "bytes": found.n_bytes,
        "format_version": FORMAT_VERSION,
        "verified": found.verified,
        "dataset": asdict(store.header.dataset),
        "encoder": asdict(store.header.encoder),
        "preprocessing": None if store.header.preprocessing is None else asdict(store.header.preprocessing),
        "environment": dict(store.header.environment),
        "splits": [_split_json(split) for split in found.splits],
        "identical_images": [[_place_json(place) for place in group] for group in found.identical],
        "shared_images": [
            {"splits": list(splits), "n_images": n_images} for splits, n_images in found.shared.items()
        ],
        "near_duplicates": None if found.near is None else _near_json(found.near),
        "images": None if found.images is None else _images_json(found.images),
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)


def _file_line(found: Inspection) -> str:
    return f"{found.store.path}: feature store, format version {FORMAT_VERSION}, {_size(found.n_bytes)}"


def _header_lines(header: StoreHeader) -> list[str]:
    encoder, prepared = header.encoder, header.preprocessing
    parts = [encoder.name, "" if encoder.weights == "none" else f"weights {encoder.weights}"]
    parts += ["" if encoder.layer in ("none", "pooled") else f"layer {encoder.layer}", encoder.precision]
    digest = "" if encoder.weights_sha256 is None else f"weights_sha256 {encoder.weights_sha256[:12]}..."
    images = "unknown"
    if prepared is not None:
        resized = "" if prepared.resize == prepared.crop else f", resized to {prepared.resize}"
        images = f"{prepared.crop} px{resized}, {prepared.interpolation}"
    labels = (
        f"{_count(encoder.labels_used.train)} in training, {_count(encoder.labels_used.val)} in selection"
    )
    made = ", ".join(f"{name} {value}" for name, value in header.environment.items() if value is not None)
    return [
        f"data set  {header.dataset.name}",
        f"encoder   {', '.join(part for part in [*parts, digest] if part)}",
        f"images    {images}",
        f"labels    {labels}",
        f"made with {made}",
    ]


def _split_cells(split: SplitReport) -> list[str]:
    health = split.health
    fewest, median, most = split.images_per_class
    rank = "-" if health.effective_rank is None else f"{health.effective_rank:.1f}"
    if health.effective_rank_rows + len(health.not_finite) < split.n_images:
        rank += f" (of {health.effective_rank_rows:,} rows)"
    return [
        split.split,
        f"{split.n_images:,}",
        f"{split.n_classes:,}",
        str(fewest) if fewest == most else f"{fewest} / {median:g} / {most}",
        str(split.embedding_dim),
        "-" if health.norms is None else " / ".join(f"{norm:.4g}" for norm in health.norms),
        rank,
        str(health.constant_dimensions),
    ]


def _health_lines(split: SplitReport) -> list[str]:
    kinds = (("not finite", split.not_finite), ("all zero", split.all_zero))
    return [
        f"{split.split}: {len(names)} embeddings are {kind}: {_some(names)}" for kind, names in kinds if names
    ]


def _identical_lines(found: Inspection) -> list[str]:
    lines = []
    for (one, other), n_images in found.shared.items():
        images = "1 image is" if n_images == 1 else f"{n_images:,} images are"
        lines.append(f"leakage: {images} pixel for pixel in both {one} and {other}")
    if found.identical:
        n_images = sum(map(len, found.identical))
        across = sum(
            len({(place.split, place.class_name) for place in group}) > 1 for group in found.identical
        )
        more = f", {across} of them across classes or splits" if across else ""
        n_groups = len(found.identical)
        groups = "1 group" if n_groups == 1 else f"{n_groups:,} groups"
        lines.append(f"{n_images:,} images in {groups} of pixel-identical ones{more}:")
        lines += [f"  {' = '.join(map(_named, group))}" for group in found.identical[:N_SHOWN]]
        lines += ["  ..."] if len(found.identical) > N_SHOWN else []
    return lines


def _near_lines(near: NearDuplicates) -> list[str]:
    where = f"{near.n_across_classes:,} across classes, {near.n_across_splits:,} across splits"
    pairs = "pair" if near.n_pairs == 1 else "pairs"
    head = f"{near.n_pairs:,} {pairs} of embeddings with a cosine of {near.threshold:g} or more ({where})"
    if not near.n_pairs:
        return [head]
    shown = near.pairs[: 2 * N_SHOWN]
    lines = [f"  {_cosine(pair)}  {_named(pair.one)} ~ {_named(pair.other)}" for pair in shown]
    return [f"{head}, the closest:", *lines, *(["  ..."] if near.n_pairs > len(shown) else [])]


def _image_lines(images: ImageComparison) -> list[str]:
    lines = [f"{images.root}: {images.n_same:,} images are those that were encoded"]
    for word, names in (
        ("changed", images.changed),
        ("missing", images.missing),
        ("not in the store", images.added),
    ):
        if names:
            lines.append(f"{images.root}: {len(names):,} {word}: {_some(names)}")
    return lines


def _cosine(pair: NearPair) -> str:
    return "pixels equal" if pair.identical else f"{pair.cosine:.4f}".rjust(12)


def _named(place: ImagePlace) -> str:
    told = place.image_id.startswith(f"{place.class_name}/")
    return f"{place.split}: {place.image_id}{'' if told else f' ({place.class_name})'}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:N_SHOWN])) + (", ..." if len(names) > N_SHOWN else "")


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _size(n_bytes: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{n_bytes} bytes"


def _split_json(split: SplitReport) -> Json:
    fewest, median, most = split.images_per_class
    health = split.health
    norms: Json = None
    if health.norms is not None:
        norms = dict(zip(("min", "median", "max"), health.norms, strict=True))
    return {
        "split": split.split,
        "n_images": split.n_images,
        "n_classes": split.n_classes,
        "embedding_dim": split.embedding_dim,
        "images_per_class": {"min": fewest, "median": median, "max": most},
        "labels_sha256": split.labels_sha256,
        "fingerprint": split.fingerprint,
        "not_finite": {"count": len(split.not_finite), "image_ids": list(split.not_finite[:N_LISTED])},
        "all_zero": {"count": len(split.all_zero), "image_ids": list(split.all_zero[:N_LISTED])},
        "norms": norms,
        "constant_dimensions": health.constant_dimensions,
        "effective_rank": health.effective_rank,
        "effective_rank_rows": health.effective_rank_rows,
    }


def _place_json(place: ImagePlace) -> Json:
    return {"split": place.split, "image_id": place.image_id, "class": place.class_name}


def _near_json(near: NearDuplicates) -> Json:
    return {
        "threshold": near.threshold,
        "n_pairs": near.n_pairs,
        "n_across_classes": near.n_across_classes,
        "n_across_splits": near.n_across_splits,
        "pairs": [
            {
                "cosine": pair.cosine,
                "identical": pair.identical,
                "images": [_place_json(pair.one), _place_json(pair.other)],
            }
            for pair in near.pairs
        ],
    }


def _images_json(images: ImageComparison) -> Json:
    return {
        "root": str(images.root),
        "n_same": images.n_same,
        "changed": list(images.changed),
        "missing": list(images.missing),
        "added": list(images.added),
    }
