"""Label-free training: what decides the weights and what does not, interruptions, and what is refused."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkout import environment
from PIL import Image
from tiny_pretrain import one_core, tiny_request

from fsnl.cache.arrays import U8
from fsnl.cache.errors import (
    DatasetError,
    EncoderError,
    EpisodeError,
    FsnlError,
    HeldError,
    MismatchError,
    OccupiedError,
    WriteError,
)
from fsnl.pipeline.pretrain import training, val_check
from fsnl.pipeline.pretrain.request import PretrainRunning
from fsnl.pipeline.pretrain.saved import Standing, save
from fsnl.pipeline.pretrain.step import Trainer, train_step
from fsnl.pipeline.pretrain.training import pretrain

PROGRAM = Path(__file__).with_name("tiny_pretrain.py")
RUNNING = PretrainRunning(device="cpu")
N_IMAGES, N_STEPS = 24, 9


@pytest.fixture(autouse=True)
def _one_core(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    n_threads = torch.get_num_threads()
    monkeypatch.setattr(training, "usable_cores", one_core)
    yield
    torch.set_num_threads(n_threads)


def pictures(n_images: int = N_IMAGES) -> list[U8]:
    """Noise of four pixels a piece, 32 x 32."""
    small = np.random.default_rng(5).integers(0, 256, (n_images, 8, 8, 3), dtype=np.uint8)
    return list(small.repeat(4, axis=1).repeat(4, axis=2))


def write(root: Path, names: list[str], images: list[U8]) -> Path:
    """Image i at `root/names[i]`."""
    for name, image in zip(names, images, strict=True):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(root / name)
    return root


def plain_names(n_images: int = N_IMAGES, *, n_classes: int = 3) -> list[str]:
    return [f"{'abcdefgh'[i % n_classes]}/{i:03d}.png" for i in range(n_images)]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("photos"), plain_names(), pictures())


@pytest.fixture(scope="module")
def whole(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a training that nobody interrupted. To be read only."""
    out = tmp_path_factory.mktemp("whole") / "whole.pt"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "usable_cores", one_core)
        return pretrain(tiny_request(photos), out=out, running=RUNNING)


@pytest.fixture(scope="module")
def begun(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that has an epoch behind it. To be copied."""
    out = tmp_path_factory.mktemp("begun") / "begun.pt"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "usable_cores", one_core)
        return pretrain(tiny_request(photos), out=out, running=replace(RUNNING, stop_after=1))


def content(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(path, weights_only=True)
    return loaded


def assert_equal(path: Path, other: Path) -> None:
    """Two trainings saw the same images, lost the same, and have the same weights, bit for bit."""
    one, two = content(path), content(other)
    for name in ("images_sha256", "n_images", "losses", "partial_loss", "steps", "recipe", "preprocessing"):
        assert one[name] == two[name], name
    assert list(one["state_dict"]) == list(two["state_dict"])
    for name, tensor in one["state_dict"].items():
        assert torch.equal(tensor, two["state_dict"][name]), name


def alone_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


# What decides the weights.


def shuffled(randomness: np.random.Generator) -> list[str]:
    names = plain_names()
    return [names[i] for i in randomness.permutation(N_IMAGES)]


def renamed(randomness: np.random.Generator) -> list[str]:
    """Other classes, other names, another kind of file of the same pixels."""
    return [f"{'zy'[i % 2]}/{number}.bmp" for i, number in enumerate(randomness.permutation(1000)[:N_IMAGES])]


def one_class(_: np.random.Generator) -> list[str]:
    return [f"a/{i:03d}.png" for i in range(N_IMAGES)]


def no_class(_: np.random.Generator) -> list[str]:
    return [f"{i:03d}.png" for i in range(N_IMAGES)]


@pytest.mark.parametrize("naming", [shuffled, renamed, one_class, no_class])
def test_labels_and_file_names_decide_nothing(
    naming: Callable[[np.random.Generator], list[str]], whole: Path, tmp_path: Path
) -> None:
    root = write(tmp_path / "other", naming(np.random.default_rng(0)), pictures())
    out = pretrain(tiny_request(root), out=tmp_path / "out.pt", running=RUNNING)
    assert_equal(out, whole)


def test_classes_only_choose_images(photos: Path, whole: Path, tmp_path: Path) -> None:
    # All that there are: by that way the images come with labels.
    classes = tmp_path / "classes.txt"
    classes.write_text("a\nb\nc\n")
    request = replace(tiny_request(photos), classes=classes)
    assert_equal(pretrain(request, out=tmp_path / "out.pt", running=RUNNING), whole)


def test_decoding_threads_and_the_time_between_two_savings_decide_nothing(
    photos: Path, whole: Path, tmp_path: Path
) -> None:
    running = replace(RUNNING, workers=3, save_seconds=-1.0)
    assert_equal(pretrain(tiny_request(photos), out=tmp_path / "out.pt", running=running), whole)


def test_the_callers_threads_and_random_state_stay_as_they_were(photos: Path, tmp_path: Path) -> None:
    torch.set_num_threads(2)
    state = torch.get_rng_state()
    pretrain(tiny_request(photos), out=tmp_path / "out.pt", running=replace(RUNNING, stop_after=1))
    assert torch.get_num_threads() == 2
    assert torch.equal(torch.get_rng_state(), state)


def test_what_layers_draw_at_random_follows_from_the_seed_too(photos: Path, tmp_path: Path) -> None:
    # SqueezeNet drops half of its features at every step.
    request = replace(
        tiny_request(photos), encoder="torchvision:squeezenet1_1", image_size=32, epochs=1, batch_size=12
    )
    whole = pretrain(request, out=tmp_path / "whole.pt", running=RUNNING)
    torch.manual_seed(123)
    again = pretrain(request, out=tmp_path / "again.pt", running=RUNNING)
    assert_equal(again, whole)


@pytest.mark.parametrize(
    "changes", [{"seed": 2}, {"views": "color+blur"}, {"temperature": 0.5}, {"weight_decay": 0.1}]
)
def test_other_words_give_other_weights(
    changes: dict[str, Any], photos: Path, begun: Path, tmp_path: Path
) -> None:
    request = replace(tiny_request(photos), **changes)
    out = pretrain(request, out=tmp_path / "out.pt", running=replace(RUNNING, stop_after=1))
    one, two = content(out), content(begun)
    assert one["losses"] != two["losses"]
    weights = "backbone.block1.0.weight"
    assert not torch.equal(one["state_dict"][weights], two["state_dict"][weights])


def test_it_learns_to_tell_images_apart(tmp_path: Path) -> None:
    # Each of one colour, which these views leave: what there is to learn is easy.
    colours = np.random.default_rng(5).integers(0, 256, (N_IMAGES, 1, 1, 3), dtype=np.uint8)
    root = write(tmp_path / "plain", plain_names(), list(colours.repeat(32, axis=1).repeat(32, axis=2)))
    request = replace(
        tiny_request(root), views="crop+blur", epochs=15, batch_size=N_IMAGES, learning_rate=0.05
    )
    losses = content(pretrain(request, out=tmp_path / "out.pt", running=RUNNING))["losses"]
    assert losses[-1] < 0.6 * losses[0]


@pytest.mark.parametrize("changes", [{"precision": "bf16"}, {"encoder": "resnet10:4"}])
def test_other_arithmetic_and_networks_train_too(
    changes: dict[str, Any], photos: Path, tmp_path: Path
) -> None:
    request = replace(tiny_request(photos), **changes)
    out = pretrain(request, out=tmp_path / "out.pt", running=replace(RUNNING, stop_after=1))
    found = content(out)
    assert np.isfinite(found["losses"]).all()
    assert all(torch.isfinite(tensor).all() for tensor in found["state_dict"].values())
    assert found["state_dict"]["projector.0.weight"].dtype == torch.float32


# What the checkpoint says.


def test_the_checkpoint_says_what_it_is_of_and_plain_torch_reads_it(whole: Path, begun: Path) -> None:
    found = content(whole)
    assert (found["format"], found["format_version"]) == ("fsnl.checkpoint", 1)
    assert (found["encoder"], found["split"], found["n_images"]) == ("conv4:8", "train", N_IMAGES)
    assert (found["steps"], len(found["losses"]), found["partial_loss"]) == (N_STEPS, 3, 0.0)
    assert found["labels_used"] == {"train": 0, "val": 0}
    assert found["preprocessing"]["crop"] == 32
    assert found["recipe"]["learning_rate"] == pytest.approx(0.5 * 8 / 512)
    assert found["environment"]["processes"] == "1"
    assert "optimizer" not in found
    assert {name.partition(".")[0] for name in found["state_dict"]} == {"backbone", "projector"}
    partly = content(begun)
    assert "optimizer" in partly
    assert (partly["steps"], partly["losses"]) == (3, found["losses"][:1])


def test_checks_on_val_spend_its_labels_and_change_no_weight(
    photos: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(val_check, "N_EPISODES", 20)
    root = tmp_path / "splits"
    write(root / "train", plain_names(), pictures())
    write(root / "val", plain_names(100, n_classes=5), pictures(100))
    notes: list[str] = []
    out = pretrain(
        tiny_request(root),
        out=tmp_path / "out.pt",
        running=replace(RUNNING, check_val=True),
        note=notes.append,
    )
    assert_equal(out, whole)
    found = content(out)
    assert found["labels_used"] == {"train": 0, "val": 100}
    assert [epoch for epoch, *_ in found["checks"]] == [1, 2, 3]
    assert all(0 <= accuracy <= 1 for _, *accuracies in found["checks"] for accuracy in accuracies)
    assert sum("1-shot" in note for note in notes) == 3


# Interrupted, and gone on with.


def killed_at(step: int, photos: Path, out: Path) -> "subprocess.Popen[str]":
    """A process that trains, and has just saved this step."""
    command = [sys.executable, str(PROGRAM), str(photos), str(out), "0", str(step)]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "saved\n" in process.stdout  # waits for that line
    return process


@pytest.mark.slow
def test_killed_in_the_middle_of_an_epoch_and_started_again_it_ends_with_the_same_bits(
    photos: Path, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.pt"
    for step in (2, 7):
        process = killed_at(step, photos, out)
        try:
            with pytest.raises(
                HeldError, match=rf"is being written by process {process.pid} on .*another --out"
            ):
                pretrain(tiny_request(photos), out=out, running=RUNNING)
        finally:
            process.kill()
            process.communicate()
        assert process.returncode == -signal.SIGKILL
        found = content(out)
        assert (found["steps"], len(found["losses"])) == (step, step // 3)
        assert found["partial_loss"] > 0
    notes: list[str] = []
    pretrain(tiny_request(photos), out=out, running=RUNNING, note=notes.append)
    assert "resuming after 7 of 9 steps" in notes
    assert_equal(out, whole)
    assert alone_in(tmp_path) == ["out.pt"], "nothing is left beside it"


def test_stopped_after_any_step_and_gone_on_with_it_ends_with_the_same_bits(
    photos: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopping(path: Path, identity: Any, standing: Standing, **options: Any) -> None:
        save(path, identity, standing, **options)
        if standing.steps < N_STEPS:
            raise KeyboardInterrupt

    out = tmp_path / "out.pt"
    monkeypatch.setattr(training, "save", stopping)
    for step in range(1, N_STEPS):
        with pytest.raises(KeyboardInterrupt):
            pretrain(tiny_request(photos), out=out, running=replace(RUNNING, save_seconds=-1.0))
        assert content(out)["steps"] == step
    pretrain(tiny_request(photos), out=out, running=RUNNING)
    assert_equal(out, whole)


def test_ended_early_on_purpose_and_gone_on_with_it_is_one_training(
    photos: Path, begun: Path, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.pt"
    shutil.copy(begun, out)
    for n_epochs in (1, 2):  # the first asks for what is there
        pretrain(tiny_request(photos), out=out, running=replace(RUNNING, stop_after=n_epochs))
        assert content(out)["steps"] == 3 * n_epochs
    assert_equal(pretrain(tiny_request(photos), out=out, running=RUNNING), whole)


def test_a_complete_training_is_left_as_it_is(
    photos: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_now(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(training, "train_step", not_now)
    monkeypatch.setattr(training, "save", not_now)
    notes: list[str] = []
    assert pretrain(tiny_request(photos), out=whole, running=RUNNING, note=notes.append) == whole
    assert notes[1:] == [f"{whole} is complete: 3 epochs trained before"]


def test_a_loss_that_is_not_finite_is_named_and_the_checkpoint_before_it_stays(
    photos: Path, begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overflowing(trainer: Trainer, images: U8, *, step: int) -> torch.Tensor:
        loss = train_step(trainer, images, step=step)
        return loss * float("inf") if step == 4 else loss

    out = tmp_path / "out.pt"
    shutil.copy(begun, out)
    monkeypatch.setattr(training, "train_step", overflowing)
    with pytest.raises(FsnlError, match=r"the loss is inf after step 6; use a smaller --learning-rate"):
        pretrain(tiny_request(photos), out=out, running=RUNNING)
    assert out.read_bytes() == begun.read_bytes()


def test_a_rate_that_is_far_too_high_ends_the_training(photos: Path, tmp_path: Path) -> None:
    request = replace(tiny_request(photos), learning_rate=1e30)
    with pytest.raises(FsnlError, match=r"the loss is nan after step [23]; use a smaller --learning-rate"):
        pretrain(request, out=tmp_path / "out.pt", running=RUNNING)


def test_weights_that_are_not_finite_are_not_saved(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoiling(trainer: Trainer, images: U8, *, step: int) -> torch.Tensor:
        loss = train_step(trainer, images, step=step)
        if step == N_STEPS - 1:  # the last gradient: no loss will tell
            next(trainer.model.parameters()).data.fill_(float("nan"))
        return loss

    out = tmp_path / "out.pt"
    monkeypatch.setattr(training, "train_step", spoiling)
    with pytest.raises(
        FsnlError, match=r"a weight is not finite after step 9; use a smaller --learning-rate"
    ):
        pretrain(tiny_request(photos), out=out, running=RUNNING)
    assert content(out)["steps"] == 6


# What is refused.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": "conv4:4"}, "encoder conv4:8, asked for conv4:4"),
        ({"views": "crop+blur"}, r"views crop\+color, asked for crop\+blur"),
        ({"epochs": 4}, "epochs 3, asked for 4"),
        ({"batch_size": 4, "learning_rate": 0.0078125}, "made with batch size 8, asked for 4; use"),
        ({"image_size": 24}, "resize 32, asked for 24; crop 32, asked for 24; image size 32, asked for 24"),
        ({"temperature": 0.5}, "temperature 0.2, asked for 0.5"),
        ({"learning_rate": 0.1}, "learning rate 0.0078125, asked for 0.1"),
        ({"momentum": 0.5}, "momentum 0.9, asked for 0.5"),
        ({"weight_decay": 0.0}, "weight decay 0.0001, asked for 0.0"),
        ({"precision": "bf16"}, "precision fp32, asked for bf16"),
        ({"split": "base"}, "split train, asked for base"),
        ({"seed": 0, "momentum": 0.8}, "momentum 0.9, asked for 0.8; seed 1, asked for 0; use another --out"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused_by_each_field(
    changes: dict[str, Any], message: str, photos: Path, begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = begun.read_bytes()
    monkeypatch.delattr(training, "identified")  # without decoding a single image
    with pytest.raises(MismatchError, match=message):
        pretrain(replace(tiny_request(photos), **changes), out=begun, running=RUNNING)
    assert begun.read_bytes() == before


def test_a_checkpoint_of_other_images_is_refused(begun: Path, tmp_path: Path) -> None:
    images = pictures()
    images[5] = images[5].copy()
    images[5][0, 0, 0] ^= 1
    changed = write(tmp_path / "changed", plain_names(), images)
    with pytest.raises(
        MismatchError, match=r"made with images sha256 \w{6}\.\.\., asked for \w{6}\.\.\.; use"
    ):
        pretrain(tiny_request(changed), out=begun, running=RUNNING)
    fewer = write(tmp_path / "fewer", plain_names()[1:], pictures()[1:])
    with pytest.raises(MismatchError, match="made with n images 24, asked for 23; use another"):
        pretrain(tiny_request(fewer), out=begun, running=RUNNING)


def not_torch(path: Path) -> None:
    path.write_text("no checkpoint")


def bare_weights(path: Path) -> None:
    torch.save({"conv1.weight": torch.zeros(3)}, path)


def list_of_tensors(path: Path) -> None:
    torch.save([torch.zeros(3)], path)


def without_recipe(path: Path) -> None:
    torch.save({"format": "fsnl.checkpoint", "format_version": 1}, path)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


@pytest.mark.parametrize("spoil", [not_torch, bare_weights, list_of_tensors, without_recipe, cut_off])
def test_something_that_is_no_checkpoint_is_refused_and_with_force_replaced(
    spoil: Callable[[Path], None], photos: Path, begun: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.pt"
    shutil.copy(begun, out)
    spoil(out)
    before = out.read_bytes()
    with pytest.raises(MismatchError, match=r"out\.pt: is no .*checkpoint of fsnl-pretrain.*--force"):
        pretrain(tiny_request(photos), out=out, running=RUNNING)
    assert out.read_bytes() == before
    pretrain(tiny_request(photos), out=out, force=True, running=replace(RUNNING, stop_after=1))
    assert_equal(out, begun)


def test_a_checkpoint_of_a_later_fsnl_is_refused(photos: Path, begun: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.pt"
    torch.save({**content(begun), "format_version": 2}, out)
    with pytest.raises(MismatchError, match="format_version 2, this fsnl reads 1; update fsnl"):
        pretrain(tiny_request(photos), out=out, running=RUNNING)


def test_before_it_trains_it_tells_how_many_images_it_has_looked_at(photos: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    pretrain(
        tiny_request(photos),
        out=tmp_path / "out.pt",
        running=replace(RUNNING, stop_after=1),
        looked_at=lambda done, total: told.append((done, total)),
    )
    assert told == [(24, 24)]


def test_force_begins_anew(photos: Path, begun: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.pt"
    other = replace(tiny_request(photos), seed=9)
    pretrain(other, out=out, running=replace(RUNNING, stop_after=1))
    notes: list[str] = []
    running = replace(RUNNING, stop_after=1)
    pretrain(tiny_request(photos), out=out, force=True, running=running, note=notes.append)
    assert not any("resuming" in note for note in notes)
    assert_equal(out, begun)


def test_the_split_of_the_novel_classes_is_refused(photos: Path, tmp_path: Path) -> None:
    request = replace(tiny_request(photos), split="test")
    with pytest.raises(DatasetError, match=r"split 'test' holds the novel classes .* train on another"):
        pretrain(request, out=tmp_path / "out.pt", running=RUNNING)


def test_fewer_images_than_a_batch_are_refused(photos: Path, tmp_path: Path) -> None:
    request = replace(tiny_request(photos), batch_size=25)
    with pytest.raises(EncoderError, match="24 images fill no batch of 25; use a smaller --batch-size"):
        pretrain(request, out=tmp_path / "out.pt", running=RUNNING)


def test_a_batch_that_the_processes_cannot_share_is_refused(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(EncoderError, match="--batch-size 8 is not a multiple of the 3 processes"):
        pretrain(tiny_request(photos), out=tmp_path / "out.pt", running=RUNNING)


def test_processes_that_nothing_connects_are_refused(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(FsnlError, match=r"the 2 processes are not connected: .*; start them with torchrun"):
        pretrain(tiny_request(photos), out=tmp_path / "out.pt", running=RUNNING)
    assert alone_in(tmp_path) == []


def test_a_val_split_that_gives_no_episodes_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    root = tmp_path / "splits"
    write(root / "train", plain_names(), pictures())
    write(root / "val", plain_names(95, n_classes=5), pictures(95))
    with pytest.raises(EpisodeError, match="class 'a' has 19 images"):
        pretrain(tiny_request(root), out=tmp_path / "out.pt", running=replace(RUNNING, check_val=True))
    assert alone_in(tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": "pixels"}, "unknown network 'pixels'; give resnet10 or conv4"),
        ({"encoder": "torchvision:resnet81"}, "has no classification network 'resnet81'"),
        (
            {"image_size": 8},
            "conv4:8 cannot be trained on images of 8 x 8 pixels: .*; try another --image-size",
        ),
    ],
)
def test_networks_that_there_are_not_and_sizes_that_they_cannot_take_are_refused(
    changes: dict[str, Any], message: str, photos: Path, tmp_path: Path
) -> None:
    with pytest.raises(EncoderError, match=message):
        pretrain(replace(tiny_request(photos), **changes), out=tmp_path / "out.pt", running=RUNNING)
    assert alone_in(tmp_path) == []


def test_places_that_cannot_be_written_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    request = tiny_request(tmp_path / "no such folder")
    with pytest.raises(OccupiedError, match="is a folder; name a file"):
        pretrain(request, out=tmp_path, running=RUNNING)
    with pytest.raises(WriteError, match=r"there is no folder .*nowhere; make it first"):
        pretrain(request, out=tmp_path / "nowhere" / "out.pt", running=RUNNING)


@pytest.mark.parametrize("letter", ["a", "漢"])
def test_a_name_as_long_as_a_file_system_takes_is_taken(letter: str, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / (letter * (255 // len(letter.encode())))
    pretrain(tiny_request(photos), out=out, running=replace(RUNNING, stop_after=1))
    assert alone_in(tmp_path) == [out.name]


def test_two_trainings_of_one_process_do_not_write_the_same_file(photos: Path, tmp_path: Path) -> None:
    out, tries = tmp_path / "out.pt", []

    def begin_another(note: str) -> None:
        if note.startswith("epoch"):
            with pytest.raises(HeldError, match="is being written by this very process"):
                pretrain(tiny_request(photos), out=out, running=RUNNING)
            tries.append(note)

    pretrain(tiny_request(photos), out=out, running=replace(RUNNING, stop_after=1), note=begin_another)
    assert len(tries) == 1
