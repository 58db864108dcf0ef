"""Image batch to embedding batch: named networks and checkpoints."""
