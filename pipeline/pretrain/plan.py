"""From the user's words to images, their preparation, and the recipe of the training."""

from fsnl.cache.errors import DatasetError
from fsnl.cache.home import fsnl_home
from fsnl.cache.schema import Preprocessing
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.datasets.class_file import read_class_file
from fsnl.pipeline.datasets.download import download
from fsnl.pipeline.datasets.layout import find_layout
from fsnl.pipeline.datasets.registry import open_image_set
from fsnl.pipeline.datasets.unlabelled import read_unlabelled
from fsnl.pipeline.encoders.recipes import (
    IMAGENET_RECIPE,
    SMALLEST_NETWORK_SIZE,
    Recipe,
    network_preprocessing,
)
from fsnl.pipeline.pretrain.model import network_name
from fsnl.pipeline.pretrain.recipe import TrainingRecipe, default_rate
from fsnl.pipeline.pretrain.request import PretrainRequest
from fsnl.pipeline.sharding.ranks import this_rank

# Splits that no training may look at, however their names are written.
_NOVEL = frozenset(("test", "testing", "eval", "novel"))

VAL = "val"


def open_training_split(request: PretrainRequest) -> ImageSet:
    """The images to learn from.

    Raises:
        DatasetError: a split of novel classes; else as `open_split`.
    """
    if request.split.lower() in _NOVEL:
        what = "holds the novel classes that accuracies are measured on"
        msg = f"split {request.split!r} {what}; train on another"
        raise DatasetError(msg)
    return open_split(request, request.split)


def open_val_split(request: PretrainRequest) -> ImageSet:
    """The images to check the network on.

    Raises:
        DatasetError: they would be those that are trained on; else as `open_split`.
    """
    if request.split == VAL:
        msg = "--check-val is for trainings on another split than val, for it measures on that"
        raise DatasetError(msg)
    if request.dataset == "folder" and request.csv is None and request.root is not None:
        if find_layout(request.root, VAL).folder == request.root:
            msg = (
                f"{request.root}: no split 'val', which --check-val needs: {request.root / 'val'}/<class>/..."
            )
            raise DatasetError(msg)
    return open_split(request, VAL)


def open_split(request: PretrainRequest, split: str) -> ImageSet:
    """List one split of the request's data set; of the split that is trained on, only the classes asked for.

    Where those are not asked for, the folders that somebody's own images lie in mean nothing.

    Raises:
        DatasetError: as `open_image_set`, `download` and `read_class_file`.
    """
    downloads = fsnl_home() / "data"
    if request.download:
        root = request.root or downloads
        download(request.dataset, root=root, split=split, leads=this_rank().leads)
    own = split == request.split
    if own and request.dataset == "folder" and request.csv is None and request.classes is None:
        if request.root is None:
            msg = "data set 'folder' needs --root, the folder that holds its images"
            raise DatasetError(msg)
        return read_unlabelled(request.root, split=split)
    return open_image_set(
        request.dataset,
        root=request.root,
        split=split,
        class_names=read_class_file(request.classes, split=split) if own and request.classes else None,
        csv=request.csv,
        downloads=downloads,
    )


def planned_preprocessing(request: PretrainRequest, image_set: ImageSet) -> Preprocessing:
    """The size asked for, else the benchmark's own, else 32 pixels, or 224 for networks of torchvision."""
    is_large = request.encoder.startswith("torchvision:")
    side = IMAGENET_RECIPE.crop if is_large else SMALLEST_NETWORK_SIZE
    return network_preprocessing(image_set, image_size=request.image_size, recipe=Recipe(side, side))


def planned_recipe(request: PretrainRequest, preprocessing: Preprocessing) -> TrainingRecipe:
    """The request with everything settled.

    Raises:
        EncoderError: no such network of ours.
    """
    rate = request.learning_rate
    return TrainingRecipe(
        encoder=network_name(request.encoder),
        views=request.views,
        epochs=request.epochs,
        batch_size=request.batch_size,
        image_size=preprocessing.crop,
        temperature=request.temperature,
        learning_rate=default_rate(request.batch_size) if rate is None else rate,
        momentum=request.momentum,
        weight_decay=request.weight_decay,
        seed=request.seed,
        precision=request.precision,
    )
