"""What can be said of the images' sizes before any is decoded."""

from fsnl.pipeline.datasets.base import ImageSet


def uniform_size(images: ImageSet) -> int | None:
    """The side S where every image is S x S, by the headers alone; None where one differs.

    Stops at the first image that differs.

    Args:
        images: one split.

    Returns:
        S in pixels, or None.

    Raises:
        DatasetError: a header cannot be read.
    """
    height, width = images.size(0)
    if height != width:
        return None
    n_images = len(images.listing.image_ids)
    return height if all(images.size(row) == (height, width) for row in range(1, n_images)) else None
