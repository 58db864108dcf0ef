"""An image file -> RGB pixels, or its size: whatever kind of image it is, or an error that names it.

What becomes of images that are not 8-bit RGB:

* Transparency (an alpha channel, a transparent palette entry or colour) is composited over white.
* Sixteen bits keep their high byte, as libpng does: 65535 becomes 255, 257 becomes 1.
* CMYK, YCbCr, grey, palette and 1-bit go through Pillow's own conversion; an embedded colour profile is
  not applied.
* Floating-point pixels are refused: nothing in the file says which values are black and white.
* Of an animation or a document of several pages the first image is taken.
* The orientation that EXIF states is applied; EXIF that cannot be read counts as none.
"""

import contextlib
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, TiffImagePlugin, UnidentifiedImageError

from fsnl.cache.arrays import U8
from fsnl.cache.errors import DatasetError
from fsnl.pipeline.datasets.guess import kind_of
from fsnl.pipeline.datasets.names import printable
from fsnl.pipeline.datasets.quiet import pillow_quiet

# File kinds and the extensions they go by. No kind that Pillow hands to another program (EPS).
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
EXTENSIONS = frozenset(".jpg .jpeg .jpe .jfif .png .webp .bmp .gif .tif .tiff .ppm .pgm .pbm .pnm".split())

# Twice Pillow's own threshold for a warning, which is where Pillow itself refuses: 537 MB of RGB.
MAX_PIXELS = 2 * 89_478_485

# What the readers of one Pillow or another raise on spoiled files.
_SPOILED = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    ArithmeticError,
    AttributeError,
    LookupError,
    EOFError,
    MemoryError,
    RuntimeError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)

_ORIENTATION = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decode(path: Path) -> U8:
    """Pixels of an image file, upright. Safe to call from several threads at once.

    Args:
        path: the file; its kind is told by its content, not by its extension.

    Returns:
        (H, W, 3) uint8 RGB, C-contiguous, writable.

    Raises:
        DatasetError: the file is missing, unreadable, empty, no image, cut short, or too large.
    """
    with _opened(path) as image:
        _mend_transparency(image)
        image.load()
        eight_bit = _eight_bit(image, path)
        # Pillow turns a TIFF upright while it loads it, and no other kind.
        turn = None if image.format == "TIFF" else _UPRIGHT.get(_orientation(image))
        rgb = _over_white(eight_bit)
        return np.array(rgb if turn is None else rgb.transpose(turn))


def header_size(path: Path) -> tuple[int, int]:
    """Height and width that `decode` would give, by the file's header: no pixel is decoded.

    Args:
        path: the file.

    Returns:
        (height, width).

    Raises:
        DatasetError: as `decode`, but a file that is cut short goes unnoticed.
    """
    with _opened(path) as image:
        # Some Pillows give the size of a TIFF upright, some as it is stored: ask its tags.
        tags = image.tag_v2 if isinstance(image, TiffImagePlugin.TiffImageFile) else None
        width, height = (tags[256], tags[257]) if tags else image.size
        turned = width != height and _orientation(image) in (5, 6, 7, 8)
        return (width, height) if turned else (height, width)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """The image of a file, header read; what goes wrong inside the block becomes a `DatasetError`."""
    try:
        with path.open("rb") as file, pillow_quiet():
            start = file.read(30)
            if not start:
                msg = f"{printable(path)}: empty file (0 bytes)"
                raise DatasetError(msg)
            if _webp_canvas(start) > MAX_PIXELS:
                raise Image.DecompressionBombError
            with Image.open(file, formats=FORMATS) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise Image.DecompressionBombError
                yield image
    except UnidentifiedImageError as error:
        kind = kind_of(start)
        if kind is not None and not kind.endswith("image"):
            msg = f"{printable(path)}: not an image: this is {kind}"
        else:
            msg = f"{printable(path)}: not an image, or damaged at its start; fsnl reads {', '.join(FORMATS)}"
        raise DatasetError(msg) from error
    except Image.DecompressionBombError as error:
        msg = f"{printable(path)}: more than {MAX_PIXELS} pixels; scale the image down"
        raise DatasetError(msg) from error
    except _SPOILED as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the operating system
            msg = f"{printable(path)}: cannot be read: {error.strerror}"
            raise DatasetError(msg) from error
        reason = str(error) or type(error).__name__
        msg = f"{printable(path)}: damaged or cut short: {reason}"
        raise DatasetError(msg) from error


def _webp_canvas(start: bytes) -> int:
    """Pixels of an extended WebP, 0 of any other file: Pillow allocates them before it tells the size."""
    if start[:4] != b"RIFF" or start[8:16] != b"WEBPVP8X":
        return 0
    return (int.from_bytes(start[24:27], "little") + 1) * (int.from_bytes(start[27:30], "little") + 1)


def _orientation(image: Image.Image) -> int:
    """EXIF orientation, 1 to 8; 1 where there is none, or none that can be read."""
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except _SPOILED:
        return 1


def _mend_transparency(image: Image.Image) -> None:
    """Bring the transparent colour of a PNG to the eight bits that its pixels get.

    Pillow 13 and before scale pixels of 2, 4 and 3 x 16 bits, and leave that colour as in the file.
    """
    colour = image.info.get("transparency")
    if image.format != "PNG" or colour is None or not (tiles := getattr(image, "tile", ())):
        return
    coding = tiles[0][3]
    if isinstance(colour, int) and coding in ("L;2", "L;4"):
        image.info["transparency"] = colour * (85 if coding == "L;2" else 17)
    elif isinstance(colour, tuple) and coding == "RGB;16B":
        image.info["transparency"] = tuple(channel >> 8 for channel in colour)


def _eight_bit(image: Image.Image, path: Path) -> Image.Image:
    """The image itself, or in 8 bits where each pixel is one number of more."""
    if image.mode == "F":
        msg = f"{printable(path)}: floating-point pixels of unknown range; save as 8 or 16 bit"
        raise DatasetError(msg)
    if image.mode != "I" and not image.mode.startswith("I;16"):
        return image
    values = np.asarray(image)  # (H, W) of some integer type
    if values.size and (values.min() < 0 or values.max() > 65535):
        msg = f"{printable(path)}: 32-bit pixels outside 0..65535; save as 8 or 16 bit"
        raise DatasetError(msg)
    grey = (values >> 8).astype(np.uint8)
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        grey[values == transparent] = 255
    return Image.fromarray(grey)


def _over_white(image: Image.Image) -> Image.Image:
    """RGB of an image of 8-bit channels; transparency shows white."""
    has_alpha = image.mode in ("LA", "La", "PA", "RGBA", "RGBa")
    if not has_alpha and "transparency" not in image.info:
        return image.convert("RGB")
    rgba = image.convert("LA").convert("RGBA") if image.mode == "La" else image.convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    white.alpha_composite(rgba)
    return white.convert("RGB")
