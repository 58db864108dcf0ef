"""What the help of fsnl-score says of classifiers, transforms and protocols."""

CLASSIFIERS = """\b
Classifiers:
  1nn                  nearest support by squared L2 (FAISS)
  knn:N                majority of the N nearest; ties by summed squared distance
  attention[:SCALE]    softmax over SCALE times the cosines, summed per class (SCALE 1)
  attention-max        class of the single largest cosine
  prototype            nearest class mean by squared L2
  prototype-cosine     class mean of the largest cosine
  mean-cosine          largest mean cosine to the supports of a class
  ridge[:LAMBDA]       ridge regression on the ways (LAMBDA 1)
  logistic[:C]         multinomial logistic regression (C 1)
  python:FILE:FUNCTION a function (support (B,W,K,D), query (B,n,D)) -> scores (B,n,W)
Cosines of an all-zero embedding are 0."""
TRANSFORMS = """\b
Transforms, fitted on a SPLIT of the store (train), or of another of the same encoder (other.h5:train):
  none  l2  power[:P]  center:SPLIT  zscore:SPLIT  pca:SPLIT:DIM  whiten:SPLIT[:DIM]
A chain fitted on the scored images themselves is shown as transductive.
SimpleShot is --classifier prototype with --transform none (UN), l2 (L2N) or center:train,l2 (CL2N)."""
PROTOCOL = """\b
--protocol bharti2020 is what the released code of Bharti et al. 2020 does, to compare with their tables:
  5-way, 15 queries per class, 10,000 episodes, --transform zscore:train throughout;
  1-shot 1nn and attention-max; 5-shot 1nn, attention-max, prototype and mean-cosine.
It differs from the definitions in the paper: features are standardised by the train split, attention
answers with the class of its single largest weight instead of the largest sum, and the mean of unit
vectors in "centroid" attention (mean-cosine) is not brought to length 1 again. With one shot the first
changes all figures, the others none."""
