"""Two records of what was asked, field by field."""

from collections.abc import Mapping

from fsnl.cache.schema import Json


def differences(old: Mapping[str, Json], new: Mapping[str, Json]) -> list[str]:
    """`NAME is OLD, asked NEW` for every field in which two records differ, named by its path.

    >>> differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}})
    ['a.c is 2, asked 3']
    """
    before, now = _flat(old), _flat(new)
    return [
        f"{name} is {before.get(name)}, asked {now.get(name)}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]


def _flat(record: Mapping[str, Json], prefix: str = "") -> dict[str, Json]:
    flat: dict[str, Json] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:  # JSON knows no tuples
            flat[f"{prefix}{name}"] = list(value) if isinstance(value, tuple) else value
    return flat
