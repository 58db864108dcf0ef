"""Encoding shard by shard, by one process or several, and assembling the store: resumable at any point.

All processes know the same list of shards; the i-th belongs to rank i % world_size. Rank 0 holds the
store's lock, settles what could change a bit of the result (the plan), encodes its shards, waits for those
of the others and assembles them. The others wait for the plan, encode theirs, and are done. They meet in
the folder of shards alone, which has to be the same for all: that takes no network and no torch.
"""
