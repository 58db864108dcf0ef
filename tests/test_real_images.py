"""Real images through the commands, against a few lines of NumPy that know nothing of fsnl."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import reference
from commands import done
from PIL import Image

from fsnl.cache.reader import open_store
from fsnl.cache.result_file import ResultFile, read_result_file

Array = npt.NDArray[Any]

# Relative gap between the two best scores below which float32 may answer either way.
CLEAR = 1e-5


def read_images(folder: Path, *, side: int | None = None) -> tuple[list[str], Array, Array]:
    """Class names, labels (N,), and pixels (N, D) as whole numbers, in order of class and file name."""
    names = sorted(path.name for path in folder.iterdir())
    labels, pixels = [], []
    for label, name in enumerate(names):
        for path in sorted((folder / name).iterdir()):
            image = Image.open(path).convert("RGB")
            if side is not None:
                image = image.resize((side, side), Image.Resampling.BILINEAR)
            labels.append(label)
            pixels.append(np.asarray(image).ravel())
    return names, np.array(labels), np.array(pixels)


def similarities(vectors: Array, support: Array, query: Array) -> tuple[Array, Array]:
    """-|q - s|^2 and cosine of each query with each support, both (n, W, K), in float64.

    Args:
        vectors: (N, D), whole numbers below 256 or anything else.
        support: (W, K) rows.
        query: (n,) rows.
    """
    s = vectors[support.ravel()].astype(np.float64)
    q = vectors[query].astype(np.float64)
    products = q @ s.T
    squares_s, squares_q = (s * s).sum(axis=1), (q * q).sum(axis=1)
    distances = squares_q[:, None] + squares_s - 2 * products
    cosines = products / np.sqrt(squares_q[:, None] * squares_s)
    shape = (len(query), *support.shape)
    return -distances.reshape(shape), cosines.reshape(shape)


def scores(vectors: Array, support: Array, query: Array) -> dict[str, Array]:
    """Per classifier, (n, W) scores; the highest is the answer."""
    nearness, cosines = similarities(vectors, support, query)
    return {
        "1nn": nearness.max(axis=2),
        "attention": np.exp(cosines).sum(axis=2),
        "attention-max": cosines.max(axis=2),
    }


def assert_answers_agree(result: ResultFile, vectors: Array, labels: Array, *, n_episodes: int) -> None:
    """The predictions of the first episodes equal the highest scores, where those are clear."""
    for key, episode_set in result.episode_sets.items():
        runs = [run for run in result.runs if run.episodes == key]
        episodes = episode_set.episodes
        n_unclear = 0
        for e in range(n_episodes):
            query = episodes.query[e].ravel()
            ways = np.repeat(np.arange(episodes.n_way), episodes.n_query)
            np.testing.assert_array_equal(labels[query], episodes.classes[e][ways])
            expected = scores(vectors, episodes.support[e], query)
            for run in runs:
                values = expected[run.summary.classifier]
                best_two = np.sort(values, axis=1)[:, -2:]
                clear = best_two[:, 1] - best_two[:, 0] > CLEAR * np.abs(best_two[:, 1])
                answers = values.argmax(axis=1)
                np.testing.assert_array_equal(run.predictions[e].ravel()[clear], answers[clear])
                right = (run.predictions[e] == np.arange(episodes.n_way)[:, None]).sum(axis=1)
                np.testing.assert_array_equal(run.correct[e], right)
                n_unclear += np.count_nonzero(~clear)
        assert n_unclear < 0.01 * n_episodes * len(runs) * len(ways)
    for run in result.runs:
        assert run.summary.total_correct == run.correct.sum()


@pytest.fixture(scope="module")
def mini(materialise: Callable[..., Path]) -> Path:
    """Forty images of each of the 20 test classes of miniImageNet."""
    return materialise("miniimagenet-folders", "--per-class", "40")


@pytest.fixture(scope="module")
def mini_store(mini: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their pixels."""
    path = tmp_path_factory.mktemp("mini") / "mini.h5"
    done("extract", "--dataset", "folder", "--root", mini, "--encoder", "pixels", "--out", path)
    return path


def test_pixels_of_miniimagenet_are_stored_as_any_decoder_reads_them(mini: Path, mini_store: Path) -> None:
    names, labels, pixels = read_images(mini / "test")
    store = open_store(mini_store)
    features = store.features("test")
    assert store.header.preprocessing is not None
    assert store.header.preprocessing.crop == 84
    assert features.class_names == tuple(names)
    np.testing.assert_array_equal(features.labels, labels)
    np.testing.assert_array_equal(features.embeddings, pixels.astype(np.float32) / 255)


def test_episodes_of_miniimagenet_are_those_of_the_slow_reference(mini_store: Path, tmp_path: Path) -> None:
    options = ("--episodes", "30", "--shot", "1", "--classifier", "1nn", "--seed", "4")
    done("score", mini_store, *options, "--out", tmp_path / "r.h5")
    (episode_set,) = read_result_file(tmp_path / "r.h5").episode_sets.values()
    labels = np.repeat(np.arange(20), 40).tolist()
    classes, support, query = reference.draw_episodes(
        labels, n_way=5, n_shot=1, n_query=15, n_episodes=30, seed=4
    )
    assert episode_set.episodes.classes.tolist() == classes
    assert episode_set.episodes.support.tolist() == support
    assert episode_set.episodes.query.tolist() == query


def test_answers_on_miniimagenet_are_those_of_brute_force(
    mini: Path, mini_store: Path, tmp_path: Path
) -> None:
    classifiers = ("--classifier", "1nn", "--classifier", "attention", "--classifier", "attention-max")
    done("score", mini_store, "--episodes", "40", *classifiers, "--out", tmp_path / "r.h5")
    _, labels, pixels = read_images(mini / "test")
    result = read_result_file(tmp_path / "r.h5")
    assert len(result.runs) == 6
    assert_answers_agree(result, pixels, labels, n_episodes=40)


def test_novel_classes_of_cifar_fs_go_through_a_network(
    materialise: Callable[..., Path], tmp_path: Path
) -> None:
    root = materialise("cifar-fs-folders", "--per-class", "10") / "cifar100"
    novel = root / "splits" / "bertinetto" / "test.txt"
    images = ("--dataset", "folder", "--root", root / "data", "--classes", novel, "--image-size", "32")
    network = ("--encoder", "torchvision:squeezenet1_1", "--weights", "random:0")
    done("extract", *images, *network, "--out", tmp_path / "cifar.h5")
    features = open_store(tmp_path / "cifar.h5").features("test")
    assert list(features.class_names) == sorted(novel.read_text().split())
    assert features.embeddings.shape == (200, 512)
    options = ("--query", "4", "--episodes", "200", "--format", "json")
    outcome = done("score", tmp_path / "cifar.h5", *options, "--out", tmp_path / "r.h5")
    result = read_result_file(tmp_path / "r.h5")
    assert_answers_agree(result, features.embeddings, features.labels, n_episodes=200)
    for run in json.loads(outcome.stdout)["runs"]:
        assert run["encoder"] == "torchvision:squeezenet1_1 random:0"
        assert run["labels_used"]["train"] == 0
        assert 0.2 < run["accuracy"] < 0.6, "an untrained network: above chance, not by much"


@pytest.mark.slow
def test_all_test_images_of_miniimagenet_agree_with_brute_force(
    materialise: Callable[..., Path], tmp_path: Path
) -> None:
    root = materialise("miniimagenet-folders")
    store, results = tmp_path / "mini.h5", tmp_path / "results.h5"
    small = ("--encoder", "pixels", "--image-size", "21")
    done("extract", "--dataset", "folder", "--root", root, *small, "--out", store)
    options = ("--classifier", "1nn", "--classifier", "attention", "--classifier", "attention-max")
    done("score", store, *options, "--out", results)
    _, labels, pixels = read_images(root / "test", side=21)
    assert len(labels) == 12_000
    result = read_result_file(results)
    assert_answers_agree(result, pixels, labels, n_episodes=200)
    # An independent program, on the images as they are (84 x 84): fewer pixels change little.
    at_84 = {
        (1, "1nn"): 0.2498,
        (1, "attention"): 0.2327,
        (5, "1nn"): 0.2844,
        (5, "attention"): 0.2469,
        (5, "attention-max"): 0.2618,
    }
    for run in result.runs:
        summary = run.summary
        assert summary.n_episodes == 10_000
        assert summary.ci95 is not None
        assert summary.ci95 < 0.0015
        expected = at_84.get((summary.n_shot, summary.classifier), summary.accuracy)
        assert abs(summary.accuracy - expected) < 0.02
