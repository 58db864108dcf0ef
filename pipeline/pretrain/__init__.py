"""Label-free training of an encoder on the images of a split: SimCLR (Chen et al. 2020, arXiv 2002.05709)."""
