"""The stages: extract (images to embeddings), sample (labels to episodes), score (embeddings to accuracy)."""
