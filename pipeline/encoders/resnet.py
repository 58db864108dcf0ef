"""Residual networks of any depth and width, with torchvision's names, up to their average pooling.

He et al. 2015 (arXiv 1512.03385), with the stride in the 3x3 convolution of a bottleneck as torchvision has
it. One description covers the networks of torchvision, wide ones and ResNeXt, those for small images (a 3x3
stem without max-pooling, as in SimCLR's and MoCo's code for CIFAR), and our own ResNet-10.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True, slots=True)
class ResNetLayout:
    """What tells one residual network from another.

    Attributes:
        stem_kernel: 7 (stride 2, then max-pooling by 2), or 3 (stride 1, no max-pooling).
        stem_width: channels after the stem.
        inner: per layer, channels inside a block.
        outer: per layer, channels between blocks.
        shortcuts: per layer and block, whether the shortcut has a convolution.
        bottleneck: three convolutions in a block, not two.
        groups: of the 3x3 convolution in a bottleneck.
    """

    stem_kernel: int
    stem_width: int
    inner: tuple[int, ...]
    outer: tuple[int, ...]
    shortcuts: tuple[tuple[bool, ...], ...]
    bottleneck: bool
    groups: int = 1

    @property
    def depth(self) -> int:
        """Layers with weights, as counted in `ResNet-50`."""
        return 2 + (3 if self.bottleneck else 2) * sum(len(blocks) for blocks in self.shortcuts)


def resnet10_layout(width: int) -> ResNetLayout:
    """One block of two convolutions per layer for images of about 32 pixels; `width` channels at first.

    0.31 million weights and 128 features at width 16, 1.2 million and 256 at 32, 4.9 million and 512 at 64.
    """
    widths = (width, 2 * width, 4 * width, 8 * width)
    return ResNetLayout(3, width, widths, widths, ((False,), (True,), (True,), (True,)), bottleneck=False)


class ResNet(nn.Module):
    """(B, 3, S, S) -> (B, D), D the channels of the last layer."""

    def __init__(self, layout: ResNetLayout) -> None:
        super().__init__()
        width, kernel = layout.stem_width, layout.stem_kernel
        self.conv1 = nn.Conv2d(3, width, kernel, 2 if kernel == 7 else 1, kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1) if kernel == 7 else nn.Identity()
        self.n_layers = len(layout.inner)
        for number, blocks in enumerate(_layers(layout), 1):
            self.add_module(f"layer{number}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(B, 3, S, S) -> (B, D)."""
        maps = self.maxpool(self.relu(self.bn1(self.conv1(inputs))))
        for number in range(1, self.n_layers + 1):
            maps = self.get_submodule(f"layer{number}")(maps)
        return torch.flatten(self.avgpool(maps), 1)


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions, or 1x1, 3x3, 1x1, beside a shortcut."""

    def __init__(
        self, channels: tuple[int, int, int], *, stride: int, shortcut: bool, bottleneck: bool, groups: int
    ) -> None:
        super().__init__()
        before, inner, after = channels
        if bottleneck:
            self.conv1 = nn.Conv2d(before, inner, 1, bias=False)
            self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, groups=groups, bias=False)
            self.conv3 = nn.Conv2d(inner, after, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(after)
        else:
            self.conv1 = nn.Conv2d(before, inner, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(inner, after, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.bn2 = nn.BatchNorm2d(inner if bottleneck else after)
        self.relu = nn.ReLU(inplace=True)
        self.bottleneck = bottleneck
        self.downsample: nn.Module | None = None
        if shortcut:
            convolution = nn.Conv2d(before, after, 1, stride, bias=False)
            self.downsample = nn.Sequential(convolution, nn.BatchNorm2d(after))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(B, C, H, W) -> (B, C', H', W')."""
        maps = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(inputs)))))
        if self.bottleneck:
            maps = self.bn3(self.conv3(self.relu(maps)))
        maps += inputs if self.downsample is None else self.downsample(inputs)
        activated: torch.Tensor = self.relu(maps)
        return activated


def _layers(layout: ResNetLayout) -> Iterator[list[ResidualBlock]]:
    before = layout.stem_width
    for number, (inner, after) in enumerate(zip(layout.inner, layout.outer, strict=True)):
        blocks = []
        for position, shortcut in enumerate(layout.shortcuts[number]):
            blocks.append(
                ResidualBlock(
                    (before, inner, after),
                    stride=2 if number and not position else 1,
                    shortcut=shortcut,
                    bottleneck=layout.bottleneck,
                    groups=layout.groups,
                )
            )
            before = after
        yield blocks
