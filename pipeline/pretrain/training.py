"""Label-free training, from the images of a split to a checkpoint."""

import contextlib
import math
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fsnl.cache.arrays import U8
from fsnl.cache.errors import FsnlError
from fsnl.cache.hdf5 import check_vacant
from fsnl.cache.schema import LabelsUsed
from fsnl.pipeline.cores import usable_cores
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.encoders.batches import prepared_batches
from fsnl.pipeline.encoders.network import choose_device
from fsnl.pipeline.pretrain.gathering import from_leader, process_group
from fsnl.pipeline.pretrain.images import TrainingImages, identified
from fsnl.pipeline.pretrain.plan import (
    open_training_split,
    open_val_split,
    planned_preprocessing,
    planned_recipe,
)
from fsnl.pipeline.pretrain.process import computing, environment, writing_alone
from fsnl.pipeline.pretrain.request import PretrainRequest, PretrainRunning
from fsnl.pipeline.pretrain.saved import Identity, Standing, check_images, load, save
from fsnl.pipeline.pretrain.step import Trainer, new_trainer, train_step
from fsnl.pipeline.pretrain.val_check import (
    N_CENTRE,
    N_EPISODES,
    check_episodes,
    embedded,
    few_shot_accuracies,
)
from fsnl.pipeline.sharding.ranks import this_rank

# Checks on the val split in a whole training.
_N_CHECKS = 10

_SHOW_SECONDS = 0.2

Progress = Callable[[int, int, float], None]


def pretrain(
    request: PretrainRequest,
    *,
    out: Path,
    force: bool = False,
    running: PretrainRunning | None = None,
    note: Callable[[str], None] = lambda text: None,
    progress: Progress = lambda done, total, loss: None,
    looked_at: Callable[[int, int], None] = lambda done, total: None,
) -> Path:
    """Train an encoder without labels, or go on with a training that was interrupted.

    SimCLR (Chen et al. 2020): two random views of each image, which the network's projections must tell
    from the views of all other images of a batch. Called by several processes at once, as `torchrun` starts
    them, each takes a part of every batch; losses and gradients are those of one process with all of it.

    Args:
        request: what to train, on what.
        out: the checkpoint, written after every epoch.
        force: begin anew whatever lies at `out`.
        running: device, decoding threads, where to end.
        note: takes lines for the user.
        progress: told of images seen, of how many in the whole training, and of the step's loss.
        looked_at: told of images decoded, of how many, before the training: it knows them by their pixels.

    Returns:
        The checkpoint's path.

    Raises:
        DatasetError, EncoderError: images or a network that cannot be used.
        EpisodeError: a val split that gives no episodes to check the network on.
        MismatchError: a checkpoint of another training at `out`; it names each field.
        OccupiedError: something else at `out`.
        HeldError: another run is writing it.
        FsnlError: a loss or a weight that is not finite, processes that cannot be connected.
        WriteError: no permission, no space.
    """
    running, rank = running or PretrainRunning(), this_rank()
    if not rank.leads:  # one voice is enough
        note, progress, looked_at = _silent, _silent, _silent
    device = choose_device(running.device)
    check_vacant(out, overwrite=True)
    image_set = open_training_split(request)
    val = open_val_split(request) if running.check_val else None
    if val is not None:
        check_episodes(val)
    preprocessing = planned_preprocessing(request, image_set)
    recipe = planned_recipe(request, preprocessing)
    n_images = len(image_set.listing.image_ids)
    n_steps = recipe.n_steps(n_images=n_images, world_size=rank.world_size)
    note(f"{request.split}: {image_set.found}; their labels are not looked at")
    n_cores = max(1, usable_cores() // rank.n_local)
    with (
        computing(n_threads=n_cores, device=device),
        writing_alone(out, rank, take_over=running.take_over),
        process_group(rank, device),
    ):
        identity = Identity(image_set.info, request.split, n_images, None, preprocessing, recipe)
        goes_on = rank.leads and out.exists() and not force
        found = load(out, identity) if goes_on else None  # what differs is told before images are decoded
        images = identified(image_set, preprocessing, workers=n_cores, progress=looked_at)
        identity = replace(identity, images_sha256=images.sha256)
        if found is not None:
            check_images(out, found[1], identity)
        trainer = new_trainer(recipe, preprocessing, n_steps=n_steps, rank=rank, device=device)
        standing = _resumed(trainer, found)
        job = _Job(request, running, image_set, val, images, identity, trainer, out, note, progress)
        if standing.steps == n_steps:
            note(f"{out} is complete: {recipe.epochs} epochs trained before")
            return out
        if standing.steps:
            note(f"resuming after {standing.steps:,} of {n_steps:,} steps")
        _train(job, standing)
    return out


@dataclass(frozen=True, slots=True)
class _Job:
    """What a training needs from its first step to its last."""

    request: PretrainRequest
    running: PretrainRunning
    image_set: ImageSet
    val: ImageSet | None
    images: TrainingImages
    identity: Identity
    trainer: Trainer
    out: Path
    note: Callable[[str], None]
    progress: Progress

    @property
    def steps_per_epoch(self) -> int:
        return self.trainer.n_steps // self.trainer.recipe.epochs

    @property
    def last_step(self) -> int:
        """Where this run ends."""
        n_epochs = self.trainer.recipe.epochs
        return self.steps_per_epoch * min(n_epochs, self.running.stop_after or n_epochs)


def _train(job: _Job, standing: Standing) -> None:
    """From where the training stands to where this run ends, saved after every epoch."""
    recipe = job.trainer.recipe
    while standing.steps < job.last_step:
        began, first = time.monotonic(), standing.steps
        for reached in _steps(job, standing):
            _save(job, reached)
            standing = reached
        seconds = time.monotonic() - began
        rate = (standing.steps - first) * recipe.batch_size / seconds
        n_left = (job.last_step - standing.steps) * recipe.batch_size
        epoch = len(standing.losses)
        job.note(
            f"epoch {epoch} of {recipe.epochs}: loss {standing.losses[-1]:.4f}, "
            f"{rate:,.0f} images/s, {n_left / rate / 60:.0f} min left"
        )
        due = epoch % max(1, recipe.epochs // _N_CHECKS) == 0 or epoch == recipe.epochs
        if due and job.val is not None and job.trainer.rank.leads:
            standing = _checked(job, job.val, standing)
            _save(job, standing)


def _checked(job: _Job, val: ImageSet, standing: Standing) -> Standing:
    """The val split's classes by the network as it is; their labels are spent."""
    sample = job.images.of(range(min(N_CENTRE, job.identity.n_images)))
    centre = embedded(job.trainer, job.image_set, sample, workers=_workers(job)).mean(axis=0)
    first, fifth = few_shot_accuracies(job.trainer, val, centre, workers=_workers(job))
    epoch = len(standing.losses)
    job.note(
        f"epoch {epoch}: {100 * first:.2f} % 1-shot, {100 * fifth:.2f} % 5-shot on val "
        f"({len(val.listing.class_names)} classes, {N_EPISODES} episodes)"
    )
    return replace(
        standing,
        labels_used=replace(standing.labels_used, val=len(val.listing.labels)),
        checks=(*standing.checks, (epoch, first, fifth)),
    )


def _steps(job: _Job, standing: Standing) -> Iterator[Standing]:
    """To the end of the epoch; yields where the training should be saved, and at the end."""
    trainer, recipe = job.trainer, job.trainer.recipe
    epoch, position = divmod(standing.steps, job.steps_per_epoch)
    total = torch.zeros((), device=trainer.device, dtype=torch.float64)
    saved = shown = time.monotonic()
    with contextlib.closing(_batches(job, epoch, position)) as batches:
        for step, pixels in enumerate(batches, standing.steps):
            loss = train_step(trainer, pixels, step=step)
            total += loss
            now = time.monotonic()
            if now - shown > _SHOW_SECONDS:
                job.progress((step + 1) * recipe.batch_size, trainer.n_steps * recipe.batch_size, float(loss))
                shown = now
            ends = step + 1 == (epoch + 1) * job.steps_per_epoch
            if ends or now - saved > job.running.save_seconds:
                partial = standing.partial + float(total)
                _check_finite(job, partial, step=step)
                yield replace(
                    standing,
                    steps=step + 1,
                    losses=(*standing.losses, partial / job.steps_per_epoch) if ends else standing.losses,
                    partial=0.0 if ends else partial,
                )
                saved = now


def _batches(job: _Job, epoch: int, position: int) -> Generator[U8, None, None]:
    """This process's part of every batch that is left of an epoch, (B, S, S, 3) uint8."""
    trainer, batch_size = job.trainer, job.trainer.recipe.batch_size
    order = trainer.recipe.order(epoch, n_images=job.identity.n_images)
    part = trainer.part(batch_size)
    batches = [
        job.images.of(order[step * batch_size : (step + 1) * batch_size][part])
        for step in range(position, job.steps_per_epoch)
    ]
    decoded = prepared_batches(
        job.image_set, job.identity.preprocessing, batches=batches, workers=_workers(job)
    )
    with contextlib.closing(decoded):
        for pixels, _ in decoded:
            yield pixels


def _workers(job: _Job) -> int:
    """On a CPU one thread decodes beside the network's; another device leaves all cores for it."""
    if job.running.workers is not None:
        return job.running.workers
    if job.trainer.device.type == "cpu":
        return 1
    return max(1, usable_cores() // job.trainer.rank.n_local)


def _check_finite(job: _Job, loss: float, *, step: int) -> None:
    """Weights too: no later loss tells what the last gradient made of them."""
    spoiled = "" if math.isfinite(loss) else f"the loss is {loss}"
    if not spoiled and not all(
        bool(tensor.isfinite().all()) for tensor in job.trainer.model.state_dict().values()
    ):
        spoiled = "a weight is not finite"
    if spoiled:
        advice = f"use a smaller --learning-rate, and another --out than {job.out}"
        msg = f"{spoiled} after step {step + 1}; {advice}"
        raise FsnlError(msg)


def _save(job: _Job, standing: Standing) -> None:
    """Write the checkpoint; the optimiser's state only where there is a next step."""
    trainer = job.trainer
    if not trainer.rank.leads:
        return
    ends = standing.steps == trainer.n_steps
    save(
        job.out,
        job.identity,
        standing,
        tensors=trainer.model.state_dict(),
        optimizer=None if ends else trainer.optimizer.state_dict(),
        environment=environment(trainer.device, world_size=trainer.rank.world_size),
        overwrite=True,
    )


def _resumed(trainer: Trainer, found: tuple[Standing, dict[str, Any]] | None) -> Standing:
    """Where a training stands, by what the leader found; the model and the optimiser become as they were."""
    found = from_leader(found, rank=trainer.rank)
    if found is None:
        return Standing(0, (), 0.0, LabelsUsed(train=0, val=0))
    standing, content = found
    if standing.steps < trainer.n_steps:
        trainer.model.load_state_dict(content["state_dict"])
        trainer.optimizer.load_state_dict(content["optimizer"])
    return standing


def _silent(*_: object) -> None:
    """Say nothing."""
