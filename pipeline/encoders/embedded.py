"""The encoder that fsnl brings along: a ResNet-10 trained by `fsnl-pretrain` without a label.

Its images are those of the 40 classes that CIFAR-FS and FC100 both train on, so it has seen none of either
one's val or test classes. Command, seed, log and digests stand in `pretrained/resnet10-simclr.json`.
"""

from pathlib import Path

EMBEDDED_NETWORK = "resnet10"
EMBEDDED_WIDTH = 16

_FOLDER = Path(__file__).parent / "pretrained"
EMBEDDED_WEIGHTS = _FOLDER / "resnet10-simclr.pt"
EMBEDDED_RECORD = _FOLDER / "resnet10-simclr.json"
EMBEDDED_CLASSES = _FOLDER / "classes.txt"
