"""Embeddings to embeddings: centre, standardise, normalise, project; one chain is part of every result."""
