"""What to call a run among others: no more than tells it from them."""

from collections.abc import Mapping, Sequence

from fsnl.pipeline.compare import EpisodeAccuracies

# In a name wherever runs differ in them.
FIRST = ("dataset", "encoder", "transform", "way", "shot", "classifier")
# In a name only where runs would share it without them.
SECOND = ("image size", "query", "sampling", "episodes", "seed", "store", "file")


def run_words(run: EpisodeAccuracies) -> Mapping[str, str]:
    """What is known of a run, each value readable by itself: `5-way`, `32 px`."""
    known = run.summary
    if known is None:
        return {"dataset": run.data_set, "classifier": run.method, "file": run.source}
    return {
        "dataset": f"{known.dataset} {known.split}",
        "encoder": known.encoder,
        "transform": "no transform" if known.transform == "none" else known.transform,
        "way": f"{known.n_way}-way",
        "shot": f"{known.n_shot}-shot",
        "classifier": known.classifier,
        "image size": "unknown size" if known.image_size is None else f"{known.image_size} px",
        "query": f"{known.n_query} queries per class",
        "sampling": f"drawn {known.sampling}",
        "episodes": f"{known.n_episodes:,} episodes",
        "seed": f"seed {known.seed}",
        "store": known.store,
        "file": run.source,
    }


def shared_words(runs: Sequence[EpisodeAccuracies]) -> list[str]:
    """What all runs have in common, in words."""
    words = [run_words(run) for run in runs]
    return [words[0][key] for key in _all_keys(words) if not _differs(words, key) and words[0][key]]


def short_names(runs: Sequence[EpisodeAccuracies]) -> list[str]:
    """A name for each run, different from all others."""
    return distinct_names([run_words(run) for run in runs])


def distinct_names(words: Sequence[Mapping[str, str]]) -> list[str]:
    """The same from words as `run_words` gives them, or some of these."""
    keys = [key for key in FIRST if _differs(words, key)]
    for key in SECOND:
        if _n_distinct(words, [*keys, key]) > _n_distinct(words, keys):
            keys.append(key)
    keys = keys or [key for key in ("classifier", "encoder") if key in words[0]][:1]
    seen: dict[str, int] = {}
    names = []
    for one in words:
        name = " ".join(one[key] for key in keys if one.get(key))
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return names


def differing_words(runs: Sequence[EpisodeAccuracies]) -> tuple[list[str], list[list[str]]]:
    """Columns in which runs differ, and each run's words in them."""
    words = [run_words(run) for run in runs]
    keys = [key for key in _all_keys(words) if _differs(words, key)] or ["classifier"]
    return keys, [[one.get(key, "") for key in keys] for one in words]


def _all_keys(words: Sequence[Mapping[str, str]]) -> list[str]:
    return [key for key in (*FIRST, *SECOND) if any(key in one for one in words)]


def _differs(words: Sequence[Mapping[str, str]], key: str) -> bool:
    return _n_distinct(words, [key]) > 1


def _n_distinct(words: Sequence[Mapping[str, str]], keys: Sequence[str]) -> int:
    return len({tuple(one.get(key, "") for key in keys) for one in words})
