"""How the files of this folder were made: `python make.py FOLDER`."""

import sys
from pathlib import Path

import numpy as np

from fsnl.cache.episode_file import EpisodeFile, write_episode_file
from fsnl.cache.reader import open_store
from fsnl.cache.result_file import write_result_file
from fsnl.cache.schema import (
    DatasetInfo,
    EncoderInfo,
    Episodes,
    LabelsUsed,
    Listing,
    Preprocessing,
    StoreHeader,
)
from fsnl.cache.writer import new_store
from fsnl.pipeline.score import score_stores

HEADER = StoreHeader(
    dataset=DatasetInfo("folder", native_size=None),
    encoder=EncoderInfo(
        name="torchvision:resnet18",
        weights="weights.pth",
        weights_sha256="ab" * 32,
        layer="pooled",
        precision="fp32",
        labels_used=LabelsUsed(train=38400, val=None),
    ),
    preprocessing=Preprocessing(
        resize=92,
        crop=84,
        interpolation="bilinear",
        antialias=True,
        mean=(0.5, 0.25, 0.125),
        std=(1.0, 0.5, 0.25),
    ),
    environment={"device": "cpu", "batch_size": 4, "torch": "2.0, 2.1", "timm": None},
)


def listing(split: str, names: tuple[str, ...], n_images: int) -> Listing:
    labels = np.repeat(np.arange(len(names)), n_images)
    ids = tuple(f"{names[label]}/{row:02d}.png" for row, label in enumerate(labels))
    return Listing(split, names, labels, ids, source_sizes=100 + np.arange(len(labels)))


def main() -> None:
    folder = Path(sys.argv[1])
    test = listing("test", ("hen", "owl", "Übung", "猫"), 3)
    train = listing("train", ("ape", "bee"), 2)
    eighths = np.arange(60).reshape(12, 5) % 7 + np.arange(12)[:, None] // 3 * 8
    embeddings = eighths.astype(np.float32) / np.float32(8)
    spoiled = np.array([[0, 1], [np.nan, 1], [np.inf, 1], [-np.inf, -0.0]], np.float32)
    with new_store(folder / "features.h5", HEADER, overwrite=False) as store:
        digests = np.arange(12, dtype=np.uint64) + np.uint64(2**63)
        store.add_split(test, [(embeddings, digests)], request={"split": "test"})
        store.add_split(train, [(spoiled, np.zeros(4, np.uint64))], request={"split": "train"})
    episodes = Episodes(
        classes=np.array([[0, 2], [3, 1]]),
        support=np.array([[[1], [6]], [[9], [5]]]),
        query=np.array([[[0, 2], [8, 7]], [[11, 10], [3, 4]]]),
        seed=7,
        sampler="by hand",
        sampling="with replacement",
    )
    features = open_store(folder / "features.h5").features("test")
    content = EpisodeFile(episodes, split="test", labels_sha256=features.labels_sha256)
    write_episode_file(folder / "episodes.h5", content)
    result = score_stores(
        [open_store(folder / "features.h5")],
        episodes=[folder / "episodes.h5"],
        classifiers=["1nn", "attention"],
    )
    write_result_file(folder / "results.h5", result)


if __name__ == "__main__":
    main()
