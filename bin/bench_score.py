"""What bin/bench-score runs: seconds for so many episodes, the floor, and the same done in other ways.

The floor is the product of the same shapes on data already gathered, plus the gathered bytes at the speed at
which this machine copies rows, both on all cores. Other ways are timed on a few episodes and scaled.
"""

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import faiss
import numpy as np
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import threadpool_limits

from fsnl.cache.schema import DatasetInfo, EncoderInfo, LabelsUsed, Listing, StoreHeader
from fsnl.cache.writer import new_store
from fsnl.pipeline.classifiers.engine import BLOCK_BYTES, predict
from fsnl.pipeline.classifiers.registry import build_classifier
from fsnl.pipeline.cores import usable_cores
from fsnl.pipeline.episodes import sample_episodes

N_CLASSES, N_PER_CLASS = 20, 600
N_QUERY = 15
CLASSIFIERS = (
    *("1nn", "knn:5", "attention", "attention-max", "prototype", "prototype-cosine", "mean-cosine"),
    *("ridge", "logistic"),
)
LABELS = np.repeat(np.arange(N_CLASSES), N_PER_CLASS)
# Products of a run: what takes longer is timed on fewer episodes.
MAX_PRODUCTS = 5e11


def embeddings_of(dim):
    """Rows as a network gives them: clusters, above zero."""
    rng = np.random.default_rng(0)
    rows = 0.3 * rng.normal(size=(N_CLASSES, dim))[LABELS] + rng.normal(size=(len(LABELS), dim))
    return np.maximum(rows, 0).astype(np.float32)


def seconds(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def on_all_cores(work, n_items):
    """Seconds for work(first, last) over shares of the items, one thread a core and one BLAS thread each."""
    n = usable_cores()
    edges = [i * n_items // n for i in range(n + 1)]
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(n) as pool:
        return seconds(lambda: list(pool.map(work, edges[:-1], edges[1:])))


def floor(embeddings, *, n_way, n_shot, n_episodes):
    """Seconds for product and gather, at best."""
    dim, m, n = embeddings.shape[1], n_way * n_shot, n_way * N_QUERY
    n_block = max(1, BLOCK_BYTES // ((m + n) * dim * 4))

    def products(first, last):
        support, query = embeddings[: n_block * m].copy(), embeddings[-n_block * n :].copy()
        support, query = np.resize(support, (n_block, m, dim)), np.resize(query, (n_block, n, dim))
        for _ in range(first, last, n_block):
            np.matmul(support, query.swapaxes(1, 2))

    def copies(first, last):
        buffer = np.empty((n_block * (m + n), dim), np.float32)
        rows = min(len(buffer), len(embeddings))
        for i in range(first, last, n_block):
            start = i * (m + n) % (len(embeddings) - rows + 1)
            np.copyto(buffer[:rows], embeddings[start : start + rows])

    return on_all_cores(products, n_episodes), on_all_cores(copies, n_episodes)


def scikit(embeddings, episodes):
    ways = np.repeat(np.arange(episodes.n_way), episodes.n_shot)
    for support, query in zip(episodes.support, episodes.query, strict=True):
        model = KNeighborsClassifier(1).fit(embeddings[support.ravel()], ways)
        model.predict(embeddings[query.ravel()])


def plain_faiss(embeddings, episodes):
    for support, query in zip(episodes.support, episodes.query, strict=True):
        index = faiss.IndexFlatL2(embeddings.shape[1])
        index.add(embeddings[support.ravel()])
        index.search(embeddings[query.ravel()], 1)


def easyfsl(embeddings, episodes):
    """Its evaluation loop, with features instead of images: one episode at a time through its module."""
    import torch
    from easyfsl.methods import PrototypicalNetworks

    rows = torch.from_numpy(embeddings)
    method = PrototypicalNetworks(torch.nn.Identity()).eval()
    ways = torch.arange(episodes.n_way).repeat_interleave(episodes.n_shot)
    with torch.no_grad():
        for support, query in zip(episodes.support, episodes.query, strict=True):
            method.process_support_set(rows[support.ravel()], ways)
            method(rows[query.ravel()]).argmax(dim=1)


def bench(embeddings, *, n_way, n_shot, n_asked):
    dim = embeddings.shape[1]
    shape = {"n_way": n_way, "n_shot": n_shot, "n_query": N_QUERY, "seed": 0}
    per_episode = n_way * n_shot * n_way * N_QUERY * dim
    n_episodes = int(min(n_asked, max(50, MAX_PRODUCTS // per_episode)))
    taken = seconds(lambda: sample_episodes(LABELS, n_episodes=n_episodes, **shape))
    episodes = sample_episodes(LABELS, n_episodes=n_episodes, **shape)
    product, gather = floor(embeddings, n_way=n_way, n_shot=n_shot, n_episodes=n_episodes)
    print(f"\nD {dim}, {n_way}-way, {n_shot}-shot, {n_episodes:,} episodes of {n_way * N_QUERY} queries")
    least = product + gather
    line("floor", least, least, f"product {product:.3f}, gather {gather:.3f}")
    line("sampling", taken, least)
    ours = {}
    for name in CLASSIFIERS:
        some = episodes
        if name == "logistic":  # W inverses of side W * K, about ten times over
            n_some = int(np.clip(2e9 / (n_way * (n_way * n_shot) ** 3 * 10), 2, n_episodes))
            some = sample_episodes(LABELS, n_episodes=n_some, **shape)
        built = [[build_classifier(name)]]
        spent = seconds(lambda s=some, b=built: predict(embeddings, [s], b, n_threads=usable_cores()))
        ours[name] = spent * n_episodes / some.n_episodes
        scaled = "" if some is episodes else f"from {some.n_episodes} episodes"
        line(name, ours[name], least, scaled)
    few = sample_episodes(LABELS, n_episodes=min(n_episodes, 100), **shape)
    others = {"scikit-learn 1nn per episode": scikit, "plain FAISS index per episode": plain_faiss}
    if importlib.util.find_spec("easyfsl") is not None:
        others["easyfsl prototypes per episode"] = easyfsl
    for name, way_of in others.items():
        way_of(embeddings, sample_episodes(LABELS, n_episodes=2, **shape))  # what only the first call costs
        spent = seconds(lambda w=way_of: w(embeddings, few)) * n_episodes / few.n_episodes
        line(name, spent, least, f"{spent / ours['1nn']:.0f} times our 1nn")


def line(name, spent, least, note=""):
    print(f"  {name:32}{spent:9.3f} s {spent / least:8.2f} floors  {note}".rstrip(), flush=True)


def bench_commands():
    """fsnl-score with its defaults on 12,000 x 640: alone, and two at once."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_store(Path(folder) / "bench.h5", embeddings_of(640))
        command = ["fsnl-score", str(path)]
        run_all([command])
        alone, memory = run_all([command])
        both, _ = run_all([command, command])
        size = path.stat().st_size / 1e6
    print("\nfsnl-score, its defaults (4 results of 10,000 episodes), 12,000 x 640, start included")
    print(
        f"  alone        {alone:6.2f} s, anonymous memory at most {memory:.0f} MB, the store {size:.0f} MB"
    )
    print(f"  two at once  {both:6.2f} s, {both / alone:.2f} times one alone", flush=True)


def run_all(commands):
    """Seconds until all have ended, and the most anonymous memory (MB) seen of one of them."""
    began, most = time.perf_counter(), 0.0
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
    while any(process.poll() is None for process in running):
        for process in running:
            most = max(most, anonymous(process.pid))
        time.sleep(0.01)
    if any(process.returncode for process in running):
        sys.exit("fsnl-score failed")
    return time.perf_counter() - began, most


def anonymous(pid):
    """Anonymous resident memory of a process in MB; 0 where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(float(text.split()[1]) for text in lines if text.startswith("RssAnon")) / 1e3


def write_store(path, embeddings):
    header = StoreHeader(
        dataset=DatasetInfo("bench", native_size=None),
        encoder=EncoderInfo("bench", "none", None, "pooled", "fp32", LabelsUsed(0, 0)),
        preprocessing=None,
        environment={},
    )
    listing = Listing(
        split="test",
        class_names=tuple(f"class-{c:02d}" for c in range(N_CLASSES)),
        labels=LABELS.astype(np.int64),
        image_ids=tuple(f"{row:05d}" for row in range(len(LABELS))),
        source_sizes=np.zeros(len(LABELS), dtype=np.int64),
    )
    with new_store(path, header, overwrite=True) as store:
        store.add_split(listing, [(embeddings, np.arange(len(LABELS), dtype=np.uint64))], request={})
    return path


def main():
    parser = argparse.ArgumentParser(prog="bench-score", description=__doc__)
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--dim", type=int, nargs="+", default=[128, 640, 2048])
    parser.add_argument("--way", type=int, nargs="+", default=[5, 20])
    parser.add_argument("--shot", type=int, nargs="+", default=[1, 5, 20])
    parser.add_argument("--commands-only", action="store_true", help="only fsnl-score as a command")
    given = parser.parse_args()
    for dim in [] if given.commands_only else given.dim:
        embeddings = embeddings_of(dim)
        for n_way in given.way:
            for n_shot in given.shot:
                bench(embeddings, n_way=n_way, n_shot=n_shot, n_asked=given.episodes)
    bench_commands()


if __name__ == "__main__":
    main()
