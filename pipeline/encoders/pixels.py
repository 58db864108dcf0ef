"""The encoder without a network: decoded pixels. The floor that every trained encoder has to clear."""

from fsnl.cache.arrays import F32, U8
from fsnl.cache.schema import EncoderInfo, LabelsUsed, Preprocessing
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.encoders.base import Encoder

PIXELS_INFO = EncoderInfo(
    name="pixels",
    weights="none",
    weights_sha256=None,
    layer="none",
    precision="fp32",
    labels_used=LabelsUsed(train=0, val=0),
)

# Images of one size up to this side keep it; the embedding then has 96 * 96 * 3 = 27,648 numbers at most.
LARGEST_OWN_SIZE = 96


def pixels_preprocessing(size: int) -> Preprocessing:
    """Resize the shorter side to `size`, cut out the centre square, scale to 0..1."""
    return Preprocessing(
        resize=size,
        crop=size,
        interpolation="bilinear",
        antialias=True,
        mean=(0.0, 0.0, 0.0),
        std=(1.0, 1.0, 1.0),
    )


def pixels_encoder(preprocessing: Preprocessing) -> Encoder:
    """The encoder whose embedding is the image itself."""
    return Encoder(info=PIXELS_INFO, preprocessing=preprocessing, encode=encode_pixels, device="cpu")


def encode_pixels(images: U8) -> F32:
    """Red, green and blue of every pixel, row by row, in [0, 1].

    Args:
        images: (B, S, S, 3) uint8 RGB.

    Returns:
        (B, S * S * 3) float32.
    """
    embeddings = images.reshape(len(images), -1).astype("float32")
    embeddings /= 255
    return embeddings


def uniform_size(image_set: ImageSet) -> int | None:
    """The side S where every image is S x S, at most `LARGEST_OWN_SIZE`, by the headers alone; else None.

    Stops at the first image that differs.

    Raises:
        DatasetError: a header cannot be read.
    """
    rows = range(len(image_set.listing.labels))
    if not rows:
        return None
    side, _ = image_set.size(0)
    alike = side <= LARGEST_OWN_SIZE and all(image_set.size(row) == (side, side) for row in rows)
    return side if alike else None
