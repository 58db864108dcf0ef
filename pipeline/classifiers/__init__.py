"""(support, query) to scores, one method per file; FAISS behind one door."""
