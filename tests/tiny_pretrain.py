"""A program: `tiny_pretrain.py ROOT OUT STOP_AFTER HANG_AT`, a short training of a small network on one core.

It saves after every step. Having saved step `HANG_AT` it says so and waits to be killed; 0 is never.
"""

import sys
import time
from pathlib import Path
from unittest import mock

from fsnl.pipeline.pretrain import training
from fsnl.pipeline.pretrain.request import PretrainRequest, PretrainRunning
from fsnl.pipeline.pretrain.saved import Standing, save


def tiny_request(root: Path) -> PretrainRequest:
    """Of 24 images, three steps in each of three epochs."""
    return PretrainRequest(dataset="folder", root=root, encoder="conv4:8", epochs=3, batch_size=8, seed=1)


def one_core() -> int:
    """In place of `usable_cores`: all trainings of the tests add up in the same order."""
    return 1


def main() -> None:
    root, out, stop_after, hang_at = sys.argv[1:]

    def saving(path: Path, identity: object, standing: Standing, **options: object) -> None:
        save(path, identity, standing, **options)  # type: ignore[arg-type]
        if standing.steps == int(hang_at):
            print("saved", flush=True)
            time.sleep(600)

    running = PretrainRunning(device="cpu", save_seconds=-1.0, stop_after=int(stop_after) or None)
    with mock.patch.multiple(training, save=saving, usable_cores=one_core):
        training.pretrain(
            tiny_request(Path(root)),
            out=Path(out),
            running=running,
            note=lambda text: print(text, flush=True),
        )


if __name__ == "__main__":
    main()
