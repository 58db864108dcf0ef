"""The loss of SimCLR: normalised temperature-scaled cross entropy, NT-Xent."""

import torch
from torch.nn import functional as F


def nt_xent(first: torch.Tensor, second: torch.Tensor, *, temperature: float) -> torch.Tensor:
    """How badly each of 2B views tells the other view of its image from all other views.

    Chen et al. 2020, equation 1: cross entropy of cosine similarities over the temperature, without the view
    itself; the mean over all 2B views.

    Args:
        first: (B, P) projections of one view of each image, any floating dtype.
        second: (B, P) projections of the other.
        temperature: more than 0.

    Returns:
        A float32 scalar; it is computed in float32 whatever the projections are.

    Raises:
        ValueError: the shapes differ, or `temperature` is not positive.
    """
    if first.shape != second.shape or first.ndim != 2:
        message = f"projections of shapes {tuple(first.shape)} and {tuple(second.shape)}, needed (B, P) twice"
        raise ValueError(message)
    if not temperature > 0:
        message = f"temperature {temperature} is not positive"
        raise ValueError(message)
    every = torch.cat((first, second)).float()
    return nt_xent_of(every, every, n_before=0, temperature=temperature)


def nt_xent_of(
    anchors: torch.Tensor, every: torch.Tensor, *, n_before: int, temperature: float
) -> torch.Tensor:
    """The mean loss of some of the views, against all of them.

    Args:
        anchors: (2A, P) float32: A first views, then their A second views.
        every: (2B, P) float32: all first views, then all second views.
        n_before: images that stand before the anchors' in `every`.
        temperature: more than 0.
    """
    n_anchors, n_images = len(anchors) // 2, len(every) // 2
    with torch.autocast(anchors.device.type, enabled=False):
        similarities = F.normalize(anchors, dim=1) @ F.normalize(every, dim=1).T / temperature
        rows = torch.arange(n_before, n_before + n_anchors, device=anchors.device)
        own, partner = torch.cat((rows, rows + n_images)), torch.cat((rows + n_images, rows))
        # a view is not compared with itself
        mask = torch.zeros_like(similarities, dtype=torch.bool).scatter_(1, own.unsqueeze(1), value=True)
        return F.cross_entropy(similarities.masked_fill(mask, float("-inf")), partner)
