"""Conv-4, the small network of the few-shot literature (Vinyals et al. 2016; Snell et al. 2017)."""

import torch
from torch import nn


class Conv4(nn.Module):
    """Four times: 3x3 convolution, batch normalisation, ReLU, max-pooling by 2; then flattened.

    Args:
        width: channels of every layer, 64 in the literature.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        for number, before in enumerate((3, width, width, width), 1):
            block = nn.Sequential(
                nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)
            )
            self.add_module(f"block{number}", block)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(B, 3, S, S) -> (B, width * (S // 16)**2): 256 numbers for 32 pixels, 1,600 for 84."""
        for block in self.children():
            inputs = block(inputs)
        return torch.flatten(inputs, 1)
