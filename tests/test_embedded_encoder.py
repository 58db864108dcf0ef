"""The encoder that fsnl brings along: what it saw, what it cost, and what it is worth."""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import done
from encoder_cases import image_set

from fsnl.cache.schema import LabelsUsed
from fsnl.pipeline.cli.pretrain import main
from fsnl.pipeline.datasets.benchmarks import BENCHMARKS
from fsnl.pipeline.encoders.embedded import EMBEDDED_CLASSES, EMBEDDED_RECORD, EMBEDDED_WEIGHTS
from fsnl.pipeline.encoders.registry import plan_encoder

RECORD = json.loads(EMBEDDED_RECORD.read_text())


def test_it_has_seen_no_class_that_either_benchmark_selects_or_measures_by() -> None:
    seen = EMBEDDED_CLASSES.read_text().split()
    cifar_fs, fc100 = BENCHMARKS["cifar-fs"], BENCHMARKS["fc100"]
    assert seen == sorted(set(cifar_fs.classes["train"]) & set(fc100.classes["train"]))
    assert len(seen) == 40
    for benchmark in (cifar_fs, fc100):
        assert not set(seen) & {*benchmark.classes["val"], *benchmark.classes["test"]}


def test_its_weights_are_small_and_those_that_the_record_says() -> None:
    weights = EMBEDDED_WEIGHTS.read_bytes()
    assert len(weights) < 1_500_000
    assert RECORD["weights_sha256"] == hashlib.sha256(weights).hexdigest()
    assert RECORD["classes_sha256"] == hashlib.sha256(EMBEDDED_CLASSES.read_bytes()).hexdigest()


def test_the_record_is_of_a_whole_training_by_a_command_that_exists() -> None:
    assert RECORD["n_images"] == 40 * 600
    assert len(RECORD["losses"]) == RECORD["recipe"]["epochs"]
    options = {option for parameter in main.params for option in parameter.opts}
    assert set(re.findall(r"--[a-z-]+", RECORD["command"])) <= options
    assert f"--seed {RECORD['recipe']['seed']}" in RECORD["command"]
    assert f"--epochs {RECORD['recipe']['epochs']}" in RECORD["command"]


@pytest.mark.parametrize("weights", [None, "default"])
def test_it_is_what_our_resnet10_is_without_other_weights_and_cost_no_label(weights: str | None) -> None:
    plan = plan_encoder("fsnl:resnet10", image_set(), weights=weights)
    assert plan.info.weights == EMBEDDED_WEIGHTS.name
    assert plan.info.weights_sha256 == RECORD["weights_sha256"]
    assert plan.info.labels_used == LabelsUsed(train=0, val=0)
    assert plan.preprocessing.mean == BENCHMARKS["cifar-fs"].mean, "those of its training"


def test_it_is_far_better_than_pixels_on_classes_that_it_never_saw(
    materialise: Callable[..., Path], tmp_path: Path
) -> None:
    root = materialise("cifar-fs-folders", "--per-class", "60")
    images = ("--dataset", "cifar-fs", "--root", root, "--split", "train", "--split", "test")
    stores = []
    for encoder in ("pixels", "fsnl:resnet10"):
        stores.append(tmp_path / f"{encoder[-3:]}.h5")
        done("extract", *images, "--encoder", encoder, "--out", stores[-1])
    method = ("--transform", "center:train,l2", "--classifier", "prototype")
    outcome = done("score", *stores, *method, "--episodes", "2000", "--format", "json")
    pixels_1, pixels_5, ours_1, ours_5 = (run["accuracy"] for run in json.loads(outcome.stdout)["runs"])
    # on all 600 images of a class: see the table in the README
    assert ours_1 > 0.41 > pixels_1 + 0.05
    assert ours_5 > 0.54 > pixels_5 + 0.05
