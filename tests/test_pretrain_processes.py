"""Two processes that train together, as torchrun starts them: the objective of one with the whole batch."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from checkout import run
from commands import image_folder
from tiny_pretrain import one_core, tiny_request

from fsnl.pipeline.pretrain import training
from fsnl.pipeline.pretrain.request import PretrainRunning

PROGRAM = Path(__file__).with_name("tiny_pretrain.py")

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="torch is built without its distributed part"
)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image_folder(tmp_path_factory.mktemp("photos"), {"hen": 8, "owl": 8, "tit": 8}, side=32)


def content(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(path, weights_only=True)
    return loaded


def alone(photos: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(training, "usable_cores", one_core)
    training.pretrain(tiny_request(photos), out=out, running=PretrainRunning(device="cpu"))
    return content(out)


def together(photos: Path, out: Path, *, stop_after: int) -> tuple[dict[str, Any], str]:
    """The checkpoint of two processes, and what they said."""
    torchrun = Path(sys.executable).with_name("torchrun")
    if not torchrun.exists():
        pytest.skip("torch is installed without torchrun")
    command = (torchrun, "--standalone", "--nproc-per-node", "2", PROGRAM, photos, out, str(stop_after), "0")
    done = run(*command, cwd=out.parent)
    assert done.returncode == 0, done.stderr
    return content(out), done.stdout


def assert_close(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Losses and weights after nine steps, to what float32 rounds: sums are in another order."""
    assert one["losses"] == pytest.approx(other["losses"], rel=1e-5)
    assert list(one["state_dict"]) == list(other["state_dict"])
    for name, tensor in one["state_dict"].items():
        torch.testing.assert_close(tensor, other["state_dict"][name], rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.slow
def test_two_train_the_objective_of_one_and_go_on_where_either_stopped(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = alone(photos, tmp_path / "whole.pt", monkeypatch)
    out, copy = tmp_path / "out.pt", tmp_path / "copy.pt"
    begun, said = together(photos, out, stop_after=1)
    assert (begun["steps"], begun["environment"]["processes"]) == (3, "2")
    assert begun["losses"] == pytest.approx(whole["losses"][:1], rel=1e-5)
    assert said.count("train: ") == 1, "one of them speaks"

    shutil.copy(out, copy)
    assert_close(alone(photos, copy, monkeypatch), whole)
    ended, said = together(photos, out, stop_after=0)
    assert said.count("resuming after 3 of 9 steps") == 1
    assert_close(ended, whole)
    assert sorted(path.name for path in tmp_path.glob("*.*")) == ["copy.pt", "out.pt", "whole.pt"]
