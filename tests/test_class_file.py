"""Lists of class names as people keep them."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsnl.cache.errors import DatasetError
from fsnl.pipeline.datasets.class_file import read_class_file
from fsnl.pipeline.datasets.names import choose_classes, one_spelling, some_of

# Names that a folder can have and a line can hold.
NAMES = st.lists(
    st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=8),
    min_size=1,
    unique_by=one_spelling,
)


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.txt", "owl\n\nbarn swallow\n#1\n"),
        ("c.txt", "  owl \nbarn swallow\t\n#1"),
        ("no_extension", "owl\nbarn swallow\n#1"),
        ("c.json", '["owl",\n "barn swallow", "#1"]'),
        ("c.json", '{"about": 1, "classes": ["owl", "barn swallow", "#1"]}'),
        ("c.csv", "owl\nbarn swallow\n#1\n"),
        ("c.csv", "filename,label\n1.jpg,owl\n2.jpg,owl\n3.jpg,barn swallow\n\n4.jpg,#1\n"),
        ("c.CSV", 'Label,note\nowl,"a, b"\n"barn swallow",\n#1,\n'),
        ("c.csv", "label,Class_Name\n0,owl\n1,barn swallow\n2,#1\n"),
        ("c.csv", "filename;label\n1.jpg;owl\n2.jpg;barn swallow\n3.jpg;#1\n"),
        ("c.tsv", "name\tn\nowl\t5\nbarn swallow\t3\n#1\t2\n"),
    ],
)
def test_each_shape_of_list_gives_its_names_in_order(
    tmp_path: Path, name: str, text: str, mark: bytes, end: str
) -> None:
    path = written(tmp_path, name, mark + text.replace("\n", end).encode())
    assert read_class_file(path) == ("owl", "barn swallow", "#1")


@given(names=NAMES)
def test_names_written_one_a_line_or_as_json_come_back(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("lists")
    expected = tuple(one_spelling(name) for name in names)
    assert read_class_file(written(folder, "c.txt", "\n".join(names))) == expected
    assert read_class_file(written(folder, "c.json", json.dumps(names))) == expected


def test_a_json_object_of_splits_gives_the_split_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, "splits.json", '{"train": ["owl"], "test": ["fox", "elk"], "sources": [1]}')
    assert read_class_file(path, split="test") == ("fox", "elk")
    with pytest.raises(DatasetError, match="neither 'classes' nor 'val' in it, but 'train', 'test'"):
        read_class_file(path, split="val")
    with pytest.raises(DatasetError, match="no 'classes' in it, but 'train', 'test', 'sources'"):
        read_class_file(path)


def test_names_come_in_the_composed_form_of_unicode(tmp_path: Path) -> None:
    assert read_class_file(written(tmp_path, "c.txt", "bu\u0308gel\nowl")) == ("b\u00fcgel", "owl")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.txt", b"", "no class name in it"),
        ("c.txt", b"\n  \n", "no class name in it"),
        ("c.csv", b"", "no class name in it"),
        ("c.csv", b"filename,label\n", "no class name in it"),
        ("c.json", b"[]", "no class name in it"),
        ("c.txt", b"owl\nfox\nowl\n", "'owl' listed more than once"),
        ("c.json", b'["owl", "owl "]', "'owl' listed more than once"),
        ("c.txt", b"\x89PNG\r\n\x1a\n", r"not UTF-8 text \(byte 0\)"),
        ("c.txt", "owl\nfox".encode("utf-16"), r"not UTF-8 text \(byte 0\); save it as UTF-8"),
        ("c.txt", b"owl\0fox", "not a text file"),
        ("c.json", b'["owl"', "not JSON: Expecting"),
        ("c.json", b"[" * 100_000, "not JSON"),
        ("c.json", b'["owl", 3]', "not a list of class names"),
        ("c.json", b'"owl"', "not a list of class names"),
        ("c.csv", b"file,species\n1.jpg,owl\n", "no column called class.* first row is 'file', 'species'"),
        ("c.csv", b"file,label\n1.jpg,owl\n2.jpg\n", "row 3 has 1 fields, the heading 2"),
        ("c.csv", b'label\n"owl\n', "not a CSV file"),
    ],
)
def test_a_list_that_cannot_be_used_is_named_with_the_reason(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = written(tmp_path, name, content)
    with pytest.raises(DatasetError, match=f"{name}: .*{message}"):
        read_class_file(path)


def test_a_list_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"nowhere\.txt: cannot be read: No such file"):
        read_class_file(tmp_path / "nowhere.txt")


def test_a_missing_class_is_named_with_the_closest_there_is() -> None:
    available = [f"class_{i}" for i in range(20)]
    with pytest.raises(
        DatasetError, match="among its 20: 'clas_7'; the closest to 'clas_7' is 'class_7'"
    ):
        choose_classes(available, wanted=["class_3", "clas_7"], where="ROOT")
    with pytest.raises(DatasetError, match=r"ROOT: 8 classes asked for, .* 'x3', 'x4' and 3 more$"):
        choose_classes(available, wanted=[f"x{i}" for i in range(8)], where="ROOT")


def test_one_class_alone_is_refused() -> None:
    for wanted in (["owl"], ["owl", "owl"]):
        with pytest.raises(DatasetError, match=r"one class alone \('owl'\); few-shot episodes need"):
            choose_classes(["owl", "fox"], wanted=wanted, where="ROOT")


def test_messages_show_the_first_names_and_count_the_rest() -> None:
    assert some_of("ab") == "'a', 'b'"
    assert some_of("abcdefg") == "'a', 'b', 'c', 'd', 'e' and 2 more"
