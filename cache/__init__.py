"""Arrays on disk: the feature store, the episode file and the result file (see FORMAT.md)."""
