"""How many labels published weights cost: the size of the labelled sets that their training saw."""

import re

# The training images of ILSVRC 2012 (Russakovsky et al. 2015), and the whole of ImageNet, 21,841 classes.
IMAGENET_1K = 1_281_167
IMAGENET_21K = 14_197_122

# timm's tags of training without any label: DINO, DINOv2, DINOv3, MAE, FCMAE (ConvNeXt V2), I-JEPA.
_UNSUPERVISED = frozenset(
    "dino fb_dino lvd142m lvd1689m dinov3_lvd1689m sat493m mae fcmae in1k_ijepa in22k_ijepa".split()
)

# Words in timm's tags for data, or teachers, whose labels nobody counted: hashtags, captions, pseudo-labels,
# features of such models, or a part of ImageNet.
_UNCOUNTED = frozenset(
    "miil usi mim m38m m30m clip laion2b laion400m laiona openai webli ssl swsl wsl ig1b yfcc100m swag seer "
    "ns jft ssld inw21k".split()
)
_IMAGENET = re.compile(r"in\d+k")


def torchvision_labels(name: str) -> int | None:
    """Labels behind torchvision's weights of one name, as `IMAGENET1K_V2`; None where nobody counted.

    >>> torchvision_labels("IMAGENET1K_V1"), torchvision_labels("IMAGENET1K_SWAG_E2E_V1")
    (1281167, None)
    """
    # SWAG was trained on hashtags first
    return IMAGENET_1K if name.startswith("IMAGENET1K_") and "SWAG" not in name else None


def timm_labels(tag: str) -> int | None:
    """Labels behind timm's weights of one tag, as `a1_in1k`; None where nobody counted.

    >>> timm_labels("a1_in1k"), timm_labels("augreg_in21k"), timm_labels("dino")
    (1281167, 14197122, 0)
    >>> timm_labels("laion2b_ft_in1k"), timm_labels("augreg_in21k_ft_in1k")
    (None, None)
    """
    if tag in _UNSUPERVISED:
        return 0
    words = set(tag.split("_"))
    sets = {word for word in words if _IMAGENET.fullmatch(word)}
    if words & _UNCOUNTED or len(sets) != 1:
        return None
    return {"in1k": IMAGENET_1K, "in21k": IMAGENET_21K, "in22k": IMAGENET_21K}.get(sets.pop())
