"""Where a network lies among the tensors of a checkpoint, and what its tensors are called there.

Training scripts wrap the network that they train: `module.` (DataParallel), `module.encoder_q.` (MoCo),
`module.base_encoder.` (MoCo v3), `backbone.` (DINO, SimCLR, Barlow Twins, VICReg, lightly, solo-learn),
`encoder.`, `model.`, `student`, `teacher`, and any of these inside one another. All of them are prefixes,
so prefixes are what is looked for; of several copies of one network the one that published evaluations use
is taken.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# Copies of a network that follow the trained one slowly. DINO's teacher is one too, and is what is evaluated.
_FOLLOWER = re.compile(r"(?:^|[._])(?:momentum|target|ema|k|m|key|student)[._]")
_TEACHER = re.compile(r"(?:^|[._])teacher[._]")

# Names inside torchvision's published DenseNet files, which predate a rule of torch about dots.
_OLD_DENSENET = re.compile(r"(.*denselayer\d+\.(?:norm|relu|conv))\.([12]\.\w+)")

# Residual networks for CIFAR call the convolution beside a block so.
_SHORTCUT = re.compile(r"(.*\d\.)shortcut(\.\d.*)")

# torch.nn.Sequential(*network.children()) numbers the layers: conv1, bn1, maybe relu, maybe maxpool, layers.
_NUMBERED = re.compile(r"(|.*\.)([234])\.0\.(?:conv1|conv2|bn1|bn2)\.weight")


@dataclass(frozen=True, slots=True)
class View:
    """One network inside a checkpoint.

    Attributes:
        prefix: before each of its names in the checkpoint, ending in a dot, or empty.
        numbers: where its layers are numbered, the number of each; empty otherwise.
        names: its tensors, by the name that the network itself would use -> the name in the checkpoint.
    """

    prefix: str
    numbers: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    def in_file(self, name: str) -> str:
        """What a tensor of the network is called, or would be called, in the checkpoint."""
        if name in self.names:
            return self.names[name]
        first, dot, rest = name.partition(".")
        if any(".shortcut." in known for known in self.names.values()):
            rest = rest.replace("downsample.", "shortcut.")
        return f"{self.prefix}{self.numbers.get(first, first)}{dot}{rest}"


def find_view(tensors: Iterable[str], *, anchors: Iterable[str], wanted: Iterable[str]) -> View | None:
    """The network whose tensors fit the names that are wanted.

    Args:
        tensors: all names in the checkpoint.
        anchors: names of the network to look for; one that is there is enough.
        wanted: names that the network consists of, as far as they are known.

    Returns:
        Of all places that hold at least half as many wanted names as the best one, the first by these
        rules: a teacher before others; a trained network before one that follows it; the more names the
        better; the shorter prefix. None where no anchor is there.
    """
    names = list(tensors)
    views = [_view(names, prefix=prefix) for prefix in sorted(_prefixes(names, anchors))]
    views += _numbered_views(names)
    known = set(wanted)
    fits = [(len(known & view.names.keys()), view) for view in views]
    best = max((n_fitting for n_fitting, _ in fits), default=0)
    if not best:
        return None
    good = [(n_fitting, view) for n_fitting, view in fits if 2 * n_fitting >= best]
    return min(good, key=lambda fit: (_rank(fit[1].prefix), -fit[0], len(fit[1].prefix), fit[1].prefix))[1]


def left_over(tensors: Iterable[str], *, used: Iterable[str]) -> str:
    """In words, what of a checkpoint was not used: `encoder_k. (320), queue (1)`; empty for nothing."""
    taken = set(used)
    counts: dict[str, int] = {}
    for name in tensors:
        if name not in taken and not name.endswith("num_batches_tracked"):
            parts = name.split(".")
            group = ".".join(parts[: min(2, len(parts) - 1)]) + "." if len(parts) > 1 else name
            counts[group] = counts.get(group, 0) + 1
    shown = [f"{group} ({count})" for group, count in counts.items()][:6]
    return ", ".join(shown) + (", ..." if len(counts) > len(shown) else "")


def _prefixes(names: list[str], anchors: Iterable[str]) -> set[str]:
    prefixes = set()
    for anchor in anchors:
        for name in names:
            if name == anchor or name.endswith(f".{anchor}"):
                prefixes.add(name[: len(name) - len(anchor)])
    return prefixes


def _view(names: list[str], *, prefix: str) -> View:
    found = {}
    for name in names:
        if name.startswith(prefix):
            found[_modern(name[len(prefix) :])] = name
    return View(prefix, names=found)


def _numbered_views(names: list[str]) -> list[View]:
    there = set(names)
    firsts: dict[str, int] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match and not there.isdisjoint((f"{match[1]}0.weight", f"{match[1]}1.weight")):
            firsts[match[1]] = min(int(match[2]), firsts.get(match[1], 9))
    return [_numbered_view(names, prefix=prefix, first=first) for prefix, first in firsts.items()]


def _numbered_view(names: list[str], *, prefix: str, first: int) -> View:
    numbers = {"conv1": "0", "bn1": "1", **{f"layer{i + 1}": str(first + i) for i in range(4)}}
    layers = {number: layer for layer, number in numbers.items()}
    found = {}
    for name in names:
        number, dot, rest = name.removeprefix(prefix).partition(".")
        if name.startswith(prefix) and number in layers:
            found[_modern(f"{layers[number]}{dot}{rest}")] = name
    return View(prefix, numbers, found)


def _modern(name: str) -> str:
    if old := _OLD_DENSENET.fullmatch(name):
        return old[1] + old[2]
    if beside := _SHORTCUT.fullmatch(name):
        return f"{beside[1]}downsample{beside[2]}"
    return name


def _rank(prefix: str) -> int:
    if _TEACHER.search(prefix):
        return 0
    return 2 if _FOLLOWER.search(prefix) else 1
