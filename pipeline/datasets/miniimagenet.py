"""miniImageNet (Vinyals et al. 2016) with the classes of Ravi and Larochelle 2017, in any common layout."""

from fsnl.pipeline.datasets.benchmark_pickle import find_pickle, read_benchmark_pickle
from fsnl.pipeline.datasets.class_folders import find_class_folders, read_class_folders
from fsnl.pipeline.datasets.csv_images import find_csv, read_benchmark_csv
from fsnl.pipeline.datasets.locate import BenchmarkLayout

MINIIMAGENET_LAYOUTS = (
    BenchmarkLayout("class folders", "{split}/<wnid>/*.jpg", find_class_folders, read_class_folders),
    BenchmarkLayout("CSV", "{split}.csv with images/", find_csv, read_benchmark_csv),
    BenchmarkLayout(
        "pickle",
        "mini-imagenet-cache-{split}.pkl, miniImageNet_category_split_{split}.pickle",
        find_pickle,
        read_benchmark_pickle,
    ),
)
