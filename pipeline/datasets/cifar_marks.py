"""Classes of CIFAR-100 told by their images, whatever numbers a file gives them.

The mark of a class is BLAKE2b, 8 bytes, of the sum of its 600 images: (32, 32, 3) int64 little-endian in C
order. It does not depend on their order, and no other images give it.
"""

import hashlib

import numpy as np

from fsnl.cache.arrays import I64, U8
from fsnl.pipeline.datasets.benchmarks import CIFAR100_CLASSES

_PER_CLASS = 600
_SHAPE = (32, 32, 3)

# In the order of CIFAR100_CLASSES.
_MARKS = """
    c120eeb344e28ad7 9c4b170f2f1c015b 29ece87f009c3ee8 0f536469581975d0 2eb942859794f9f9 3f56b398c43cede4
    61ba5d7804c918f4 d84b7f4b0f1912de 6ab86fe67075d124 316c20b4eaa3bc78 e31d1a7a920237bc 911c50657c57a4a6
    e7b428f56921ecd7 8b7e04ff50b7c3f1 01c66f0842effb7b 34314577fb7f8742 b6927d0d80d96708 db6ba04c1d7b7e55
    735d783ff343dce1 d79c4a591cf86826 b68da95dc287b4a1 1c3064a28aab9ba3 5755c894007f4600 fa4b896846fb86c3
    8f490fd0f5035357 e3d55fb9ddd1cb53 5a6ca62192f35723 df1713177d88cf46 034e12183732e12e 46a9017ceee86a0c
    25df2640d03d4b5a eb0adbc2ee78ced2 2a92e5bb9792ecf4 0442b7a47d5063f1 2d443fc9e89bdfc0 464d4e6ebc9222b7
    783e71a9fdec38d3 9a27b6ab3f039e98 12b6f3edf4307026 e4cbf5aff90d487a 491b75874b3ca6cb dcf83be97d9c6e82
    bd173814f71097d1 d0ef915b5985218f eb523d6a677f1e6a a350ec74c238eb91 be0a27d63ffe5994 49b134189124ccd9
    907f0fea69a963a8 6cda4d8682fb4d0a a6a85329fe630c8a d1b3d1debeee883b 8585ea8dd1b5947d dbbe04f61e43f939
    ae3b167d859cf8eb 6785ec8b1a424ee6 210ea6b5994492b3 b3e43e4ac010f466 0cbd48c2988cab73 3555f2bf2dc251cb
    8b28dbb70ca46d5d 1ee70374a20327ed 6b28654ff1109abc d71066cf48386e72 6db56f924b6b6452 3fb51eabe881522b
    8c5aa8427c7a3a59 ef297de12cd77d86 c0b94a80130f2b83 d11ac7a138387cb6 c0d2303b5b43cb2e 2100b10d2d620d7e
    3e5a3ee23fe47a16 c92e01bb8d1ca70d e55f7f65bff56f1d d1c0d3e1aacbf8ea 9f9fa25515800873 1d5afdc6131dfdfd
    3f14378af653e6b5 20916775841dcd19 e86c85e979912040 34cfb7e35caa6404 d5bc6fcdd10f3ca8 a6c1a3c2f5a3c7ef
    3fee3c58d9fa3131 fa023f67dfd8ee69 ddc5887866efb639 a5201c5cc4f6b51f b17a3795ef17a449 ab785a7647680f72
    dc8552bfcd4a4ace cad5ecd0d6b9c7d4 6a881cbb487268f5 b688d3d13fba2799 1d106efcba46feea 874ca42185e8e075
    b1c5875e8c71885f 27434d12015886e6 7d7fca2b3b015fb3 b3542ed7ac348417
""".split()

_NAMES = dict(zip(_MARKS, CIFAR100_CLASSES, strict=True))


def names_by_images(pixels: U8, labels: I64) -> tuple[str, ...] | None:
    """Names of classes whose images are exactly CIFAR-100's; None where those of some class are not.

    Args:
        pixels: (N, H, W, 3) uint8.
        labels: (N,) int64, 0..C-1.

    Returns:
        C names, different ones, or None.
    """
    counts = np.bincount(labels)
    if pixels.shape[1:] != _SHAPE or (counts != _PER_CLASS).any():
        return None
    names = [_NAMES.get(_mark(pixels[labels == label])) for label in range(len(counts))]
    known = tuple(name for name in names if name is not None)
    return known if len(set(known)) == len(counts) else None


def _mark(pixels: U8) -> str:
    total = pixels.sum(axis=0, dtype="<i8")  # (32, 32, 3)
    return hashlib.blake2b(total.tobytes(), digest_size=8).hexdigest()
