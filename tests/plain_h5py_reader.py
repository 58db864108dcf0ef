"""The three files as any other program sees them: h5py, NumPy and the names of the format, nothing of fsnl.

    python plain_h5py_reader.py STORE EPISODES RESULTS

computes digests and accuracies again, and prints as JSON what it found; test_result_file.py compares.
"""

import hashlib
import json
import sys
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def texts(dataset: h5py.Dataset) -> list[str]:
    return [text(value) for value in dataset[()].tolist()]


def sha256(*arrays: Array) -> str:
    return hashlib.sha256(b"".join(array.astype("<i8").tobytes() for array in arrays)).hexdigest()


def labels_sha256(class_names: list[str], image_ids: list[str], labels: Array) -> str:
    data = np.array([len(class_names), len(image_ids)], "<i8").tobytes()
    data += b"".join(name.encode() + b"\0" for name in class_names + image_ids)
    return hashlib.sha256(data + labels.astype("<i8").tobytes()).hexdigest()


def answers_1nn(support: Array, query: Array) -> Array:
    """(W, K, D) and (n, D) -> (n,): the way of the nearest support; the first of equal ones."""
    _, n_shot, dim = support.shape
    distances = ((query[:, None] - support.reshape(1, -1, dim)) ** 2).sum(axis=2)
    return np.asarray(distances.argmin(axis=1) // n_shot)


def answers_attention(support: Array, query: Array) -> Array:
    """(W, K, D) and (n, D) -> (n,): softmax of the cosines, summed for each way."""
    support = support / np.linalg.norm(support, axis=2, keepdims=True)
    query = query / np.linalg.norm(query, axis=1, keepdims=True)
    weights = np.exp(np.einsum("nd,wkd->nwk", query, support))
    return np.asarray(weights.sum(axis=2).argmax(axis=1))


def n_right(answers: Any, embeddings: Array, support: Array, query: Array) -> int:
    n_way, n_query = query.shape[1:]
    ways = np.repeat(np.arange(n_way), n_query)
    pairs = zip(embeddings[support], embeddings[query.reshape(len(query), -1)], strict=True)
    return sum(int((answers(*pair) == ways).sum()) for pair in pairs)


def read(store_path: str, episodes_path: str, results_path: str) -> dict[str, Any]:
    with h5py.File(store_path, "r") as store:
        split = store["splits/test"]
        embeddings = split["embeddings"][()].astype(np.float64)
        labels = split["labels"][()]
        class_names, image_ids = texts(split["class_names"]), texts(split["image_ids"])
        found: dict[str, Any] = {
            "format": [text(store.attrs["format"]), int(store.attrs["format_version"])],
            "complete": bool(store.attrs["complete"]),
            "encoder": json.loads(store.attrs["encoder"])["name"],
            "dataset": json.loads(store.attrs["dataset"])["name"],
            "n_digests": len(split["image_digests"]),
            "stored_labels_sha256": text(split.attrs["labels_sha256"]),
            "labels_sha256": labels_sha256(class_names, image_ids, labels),
        }
    with h5py.File(episodes_path, "r") as file:
        classes, support, query = (file[name][()] for name in ("classes", "support", "query"))
        stored = {name: text(file.attrs[name]) for name in file.attrs if name.endswith("_sha256")}
        numbers = ("n_way", "n_shot", "n_query", "n_episodes", "seed")
        found["episodes"] = {
            "format": [text(file.attrs["format"]), int(file.attrs["format_version"])],
            "stored": stored,
            "queries_sha256": sha256(classes, query),
            "episodes_sha256": sha256(classes, support, query),
            "split": text(file.attrs["split"]),
            **{name: int(file.attrs[name]) for name in numbers},
        }
    with h5py.File(results_path, "r") as file:
        found["results_format"] = [text(file.attrs["format"]), int(file.attrs["format_version"])]
        found["runs"] = [run_of(file, str(n)) for n in range(len(file["runs"]))]
        found["same_labels"] = all(
            np.array_equal(group["labels"][()], labels)
            and (texts(group["class_names"]), texts(group["image_ids"])) == (class_names, image_ids)
            for group in file["episodes"].values()
        )
    found["n_right"] = {
        "1nn": n_right(answers_1nn, embeddings, support, query),
        "attention": n_right(answers_attention, embeddings, support, query),
    }
    return found


def run_of(file: h5py.File, number: str) -> dict[str, Any]:
    run = file["runs"][number]
    name = text(run.attrs["episodes"])
    arrays = (file["episodes"][name][part][()] for part in ("classes", "support", "query"))
    predictions, correct = run["predictions"][()], run["correct"][()]
    right = predictions == np.arange(predictions.shape[1])[:, None]
    return {
        "summary": json.loads(run.attrs["summary"]),
        "group": name,
        "episodes_sha256": sha256(*arrays),
        "n_right": int(right.sum()),
        "correct_fits": np.array_equal(right.sum(axis=2), correct),
    }


if __name__ == "__main__":
    everything = read(*sys.argv[1:])
    everything["fsnl_was_imported"] = any(name.split(".")[0] == "fsnl" for name in sys.modules)
    print(json.dumps(everything))
