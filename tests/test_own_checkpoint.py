"""Checkpoints of fsnl-pretrain as encoders: they say themselves what they are and what they cost."""

from pathlib import Path

import numpy as np
import pytest
import torch
from encoder_cases import MEAN, image_set, noise

from fsnl.cache.arrays import F32
from fsnl.cache.errors import EncoderError
from fsnl.cache.schema import DatasetInfo, LabelsUsed, Preprocessing
from fsnl.pipeline.encoders.own_checkpoint import is_own, own_facts
from fsnl.pipeline.encoders.registry import build_encoder, plan_encoder
from fsnl.pipeline.pretrain.model import Model, build_model
from fsnl.pipeline.pretrain.recipe import TrainingRecipe
from fsnl.pipeline.pretrain.saved import Identity, Standing, save

OWN_MEAN, OWN_STD = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
ENCODERS = ["resnet10:4", "conv4:8", "torchvision:squeezenet1_1"]


def checkpoint(path: Path, encoder: str, *, val: int = 0) -> Model:
    """A training that has just ended, as fsnl-pretrain leaves it."""
    model = build_model(encoder, image_size=32, seed=3)
    preprocessing = Preprocessing(32, 32, "bilinear", antialias=True, mean=OWN_MEAN, std=OWN_STD)
    recipe = TrainingRecipe(encoder, "crop+color", 1, 8, 32, 0.2, 0.1, 0.9, 0.0, 3, "fp32")
    identity = Identity(DatasetInfo("folder", None), "train", 8, "0" * 64, preprocessing, recipe)
    standing = Standing(1, (2.0,), 0.0, LabelsUsed(train=0, val=val))
    tensors = model.state_dict()
    save(path, identity, standing, tensors=tensors, optimizer=None, environment={}, overwrite=False)
    return model.eval()


def prepared() -> torch.Tensor:
    inputs = torch.from_numpy(noise(3, 32)).permute(0, 3, 1, 2).contiguous().float() / 255
    return (inputs - torch.tensor(OWN_MEAN).reshape(3, 1, 1)) / torch.tensor(OWN_STD).reshape(3, 1, 1)


def encoded(spec: str, **options: str) -> F32:
    return build_encoder(spec, image_set(), device="cpu", **options).encode(noise(3, 32))  # type: ignore[arg-type]


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_checkpoint_of_any_network_is_built_and_fed_as_it_was_trained(encoder: str, tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "net.pt", encoder)
    with torch.no_grad():
        features = model.backbone(prepared())
        projections = model.projector(features)
    spec = f"checkpoint:{tmp_path / 'net.pt'}"
    np.testing.assert_allclose(encoded(spec), features.numpy(), atol=1e-5)
    np.testing.assert_allclose(encoded(spec, layer="head"), projections.numpy(), atol=1e-5)


def test_the_same_weights_under_the_name_of_their_network_are_the_same_encoder(tmp_path: Path) -> None:
    checkpoint(tmp_path / "net.pt", "resnet10:4")
    by_name = encoded("fsnl:resnet10", weights=str(tmp_path / "net.pt"))
    np.testing.assert_array_equal(by_name, encoded(f"checkpoint:{tmp_path / 'net.pt'}"))


def test_labels_and_preprocessing_are_those_of_the_checkpoint(tmp_path: Path) -> None:
    checkpoint(tmp_path / "net.pt", "conv4:8", val=320)
    plan = plan_encoder(f"checkpoint:{tmp_path / 'net.pt'}", image_set())
    assert plan.info.labels_used == LabelsUsed(train=0, val=320)
    assert (plan.preprocessing.mean, plan.preprocessing.std) == (OWN_MEAN, OWN_STD) != (MEAN,) * 2
    assert plan.preprocessing.crop == 32
    assert plan_encoder(f"checkpoint:{tmp_path / 'net.pt'}", image_set(), labels_used=0) == plan
    with pytest.raises(EncoderError, match=r"net\.pt saw 0 labels in training, as it says itself, not 7"):
        plan_encoder(f"checkpoint:{tmp_path / 'net.pt'}", image_set(), labels_used=7)


def test_other_files_are_not_taken_for_ours(tmp_path: Path) -> None:
    torch.save({"state_dict": {"weight": torch.zeros(2)}}, tmp_path / "other.pt")
    (tmp_path / "text.pt").write_text("fsnl.checkpoint")
    for name in ("other.pt", "text.pt", "nothing.pt"):
        assert not is_own(tmp_path / name)
        assert own_facts(tmp_path / name) is None
    # the words alone do not make a checkpoint
    torch.save({"note": "not of fsnl.checkpoint"}, tmp_path / "words.pt")
    assert own_facts(tmp_path / "words.pt") is None


def test_a_checkpoint_of_another_version_or_without_a_fact_is_refused(tmp_path: Path) -> None:
    checkpoint(tmp_path / "net.pt", "conv4:8")
    content = torch.load(tmp_path / "net.pt", weights_only=True)
    torch.save({**content, "format_version": 2}, tmp_path / "newer.pt")
    with pytest.raises(EncoderError, match=r"newer\.pt: format_version 2, this fsnl reads 1; update fsnl"):
        plan_encoder(f"checkpoint:{tmp_path / 'newer.pt'}", image_set())
    del content["preprocessing"]
    torch.save(content, tmp_path / "less.pt")
    with pytest.raises(EncoderError, match=r"less\.pt: a checkpoint of fsnl-pretrain without 'preproc"):
        plan_encoder(f"checkpoint:{tmp_path / 'less.pt'}", image_set())
