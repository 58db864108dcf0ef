"""Files of every released format version stay readable, and hold what they held (tests/data/archives)."""

import hashlib
import json
from pathlib import Path

import h5py
import numpy as np
import pytest

import fsnl.cache
from fsnl.cache.episode_file import check_fits, read_episode_file
from fsnl.cache.errors import FormatError
from fsnl.cache.reader import open_store
from fsnl.cache.result_file import read_result_file
from fsnl.cache.schema import FORMAT_VERSION, LabelsUsed, Preprocessing
from fsnl.cache.verify import verify_store

V1 = Path(__file__).parent / "data" / "archives" / "v1"
NAMES = ("hen", "owl", "Übung", "猫")
LABELS_SHA256 = "eae434c293f764a1785968642d6bf6a52c398595fa8fdb835981bbf9a941ae8a"


def test_a_store_of_version_1_is_read() -> None:
    verify_store(V1 / "features.h5")
    store = open_store(V1 / "features.h5")
    assert store.splits == ("test", "train")
    encoder = store.header.encoder
    assert (encoder.name, encoder.weights, encoder.weights_sha256) == (
        "torchvision:resnet18",
        "weights.pth",
        "ab" * 32,
    )
    assert (encoder.layer, encoder.precision, encoder.labels_used) == (
        "pooled",
        "fp32",
        LabelsUsed(38400, None),
    )
    assert store.header.preprocessing == Preprocessing(
        92, 84, "bilinear", True, (0.5, 0.25, 0.125), (1.0, 0.5, 0.25)
    )
    assert (store.header.dataset.name, store.header.dataset.native_size) == ("folder", None)
    assert store.header.environment == {"device": "cpu", "batch_size": 4, "torch": "2.0, 2.1", "timm": None}
    assert store.requests == {"test": {"split": "test"}, "train": {"split": "train"}}
    assert store.fingerprints["test"] == "5f09908118669274240eda061124d33c4999859bf657b9b7e642544c1990222e"


def test_the_arrays_of_a_store_of_version_1_are_what_they_were() -> None:
    store = open_store(V1 / "features.h5")
    features = store.features("test")
    assert features.class_names == NAMES
    assert features.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert features.image_ids[:4] == ("hen/00.png", "hen/01.png", "hen/02.png", "owl/03.png")
    assert features.image_ids[-1] == "猫/11.png"
    assert features.image_digests.tolist() == [2**63 + row for row in range(12)]
    assert features.labels_sha256 == LABELS_SHA256
    assert features.embeddings[0].tolist() == [0, 0.125, 0.25, 0.375, 0.5]
    assert features.embeddings[11].tolist() == [3.75, 3.0, 3.125, 3.25, 3.375]
    digest = hashlib.sha256(features.embeddings.astype("<f4").tobytes()).hexdigest()
    assert digest == "940eca7dac8e23696498e86f0e100bd2abdf827a0e9a3a82e7801d0f8945726f"
    train = store.features("train")
    expected = np.array([[0, 1], [np.nan, 1], [np.inf, 1], [-np.inf, -0.0]], dtype=np.float32)
    assert train.embeddings.tobytes() == expected.tobytes()
    assert train.image_digests.tolist() == [0, 0, 0, 0]


def test_an_episode_file_of_version_1_is_read() -> None:
    content = read_episode_file(V1 / "episodes.h5")
    episodes = content.episodes
    assert episodes.classes.tolist() == [[0, 2], [3, 1]]
    assert episodes.support.tolist() == [[[1], [6]], [[9], [5]]]
    assert episodes.query.tolist() == [[[0, 2], [8, 7]], [[11, 10], [3, 4]]]
    assert (episodes.seed, episodes.sampler, episodes.sampling) == (7, "by hand", "with replacement")
    assert (content.split, content.labels_sha256) == ("test", LABELS_SHA256)
    check_fits("episodes.h5", content, open_store(V1 / "features.h5").features("test"), store="features.h5")


def test_a_result_file_of_version_1_is_read() -> None:
    result = read_result_file(V1 / "results.h5")
    assert len(result.episode_sets) == 1
    episodes = next(iter(result.episode_sets.values()))
    assert episodes.class_names == NAMES
    assert episodes.labels_sha256 == LABELS_SHA256
    one_nn, attention = result.runs
    assert (one_nn.summary.classifier, attention.summary.classifier) == ("1nn", "attention")
    assert one_nn.predictions.tolist() == [[[0, 0], [1, 1]], [[0, 0], [1, 1]]]
    assert attention.predictions.tolist() == [[[1, 1], [1, 1]], [[0, 0], [0, 0]]]
    assert attention.correct.tolist() == [[0, 2], [2, 0]]
    assert (attention.summary.accuracy, attention.summary.total_queries) == (0.5, 8)
    assert attention.summary.labels_used.train == 38400
    assert attention.episodes == f"{attention.summary.episodes_sha256}-{LABELS_SHA256[:8]}"


@pytest.mark.parametrize("name", ["features.h5", "episodes.h5", "results.h5"])
def test_the_files_are_as_format_md_says(name: str) -> None:
    # With h5py alone; see cache/FORMAT.md.
    def contents(group: h5py.Group) -> str:
        record: dict[str, dict[str, object]] = {"attributes": {}, "datasets": {}, "groups": {}}
        for attribute, value in group.attrs.items():
            text = h5py.check_string_dtype(group.attrs.get_id(attribute).dtype)
            assert text is None or (text.encoding == "utf-8" and text.length)
            if attribute != "contents_sha256":
                record["attributes"][attribute] = value.decode() if text else value.item()
        for key, item in group.items():
            if isinstance(item, h5py.Group):
                record["groups"][key] = contents(item)
                continue
            digest = hashlib.sha256(item[()].tobytes()).hexdigest()
            assert (item.attrs["sha256"].decode(), item.chunks, item.compression) == (digest, None, None)
            record["datasets"][key] = {"dtype": item.dtype.str, "shape": list(item.shape), "sha256": digest}
        text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert group.attrs["contents_sha256"].decode() == hashlib.sha256(text.encode()).hexdigest()
        return str(group.attrs["contents_sha256"].decode())

    with h5py.File(V1 / name) as file:
        contents(file)
        assert file.attrs["format_version"] == 1
    assert (V1 / name).read_bytes()[8] >= 2, "the superblock of libver=latest"


def test_a_newer_version_is_refused_with_advice(tmp_path: Path) -> None:
    newer = tmp_path / "newer.h5"
    newer.write_bytes((V1 / "features.h5").read_bytes())
    with h5py.File(newer, "r+") as file:
        file.attrs["format_version"] = FORMAT_VERSION + 1
    with pytest.raises(FormatError, match=r"newer.h5: format_version 2, this fsnl reads 1; update fsnl"):
        open_store(newer)


def test_format_md_has_every_attribute_and_array_of_a_store() -> None:
    text = Path(fsnl.cache.__path__[0], "FORMAT.md").read_text(encoding="utf-8")
    for name in ("features.h5", "episodes.h5", "results.h5"):
        with h5py.File(V1 / name) as file:
            names = [*file.attrs]
            file.visititems(
                lambda key, item, names=names: names.extend([key.rpartition("/")[2], *item.attrs])
            )
        known = {"test", "train", "0", "1", *(key for key in names if len(key) > 40)}
        assert not [key for key in {*names} - known if f"`{key}`" not in text and f"/{key}" not in text]
