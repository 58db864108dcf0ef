"""Episodes: the drawing rule against a slow reference, its laws by Hypothesis, its evenness by chance."""

from collections.abc import Callable
from typing import TypedDict

import numpy as np
import numpy.typing as npt
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from stores import even_labels

from fsnl.cache.arrays import I64
from fsnl.cache.errors import EpisodeError, FsnlError
from fsnl.cache.fingerprint import episodes_sha256, queries_sha256
from fsnl.cache.schema import Episodes
from fsnl.pipeline import episodes as module
from fsnl.pipeline.episodes import sample_episodes


class Drawing(TypedDict):
    """Arguments of `sample_episodes`."""

    n_way: int
    n_shot: int
    n_query: int
    n_episodes: int
    seed: int


@st.composite
def draws(draw: st.DrawFn) -> tuple[I64, Drawing]:
    """Labels in any row order, and what can be drawn from them."""
    n_shot, n_query = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    counts = draw(st.lists(st.integers(n_shot + n_query, n_shot + n_query + 6), min_size=1, max_size=7))
    labels = draw(st.permutations(np.repeat(np.arange(len(counts)), counts).tolist()))
    drawing = Drawing(
        n_way=draw(st.integers(1, len(counts))),
        n_shot=n_shot,
        n_query=n_query,
        n_episodes=draw(st.integers(1, 9)),
        seed=draw(st.integers(0, 2**63 - 1)),
    )
    return np.array(labels, dtype=np.int64), drawing


def arrays(episodes: Episodes) -> tuple[I64, I64, I64]:
    return episodes.classes, episodes.support, episodes.query


def assert_same(actual: Episodes, expected: Episodes) -> None:
    for one, other in zip(arrays(actual), arrays(expected), strict=True):
        np.testing.assert_array_equal(one, other)


@given(draws())
def test_support_and_query_never_share_a_row_and_none_comes_twice(case: tuple[I64, Drawing]) -> None:
    labels, drawing = case
    episodes = sample_episodes(labels, **drawing)
    rows = np.concatenate([episodes.support, episodes.query], axis=2).reshape(drawing["n_episodes"], -1)
    assert all(len(set(of_episode)) == rows.shape[1] for of_episode in rows.tolist())


@given(draws())
def test_every_row_is_of_the_class_of_its_way(case: tuple[I64, Drawing]) -> None:
    labels, drawing = case
    episodes = sample_episodes(labels, **drawing)
    for rows in (episodes.support, episodes.query):
        assert rows.min() >= 0
        assert rows.max() < len(labels)
        np.testing.assert_array_equal(labels[rows], np.broadcast_to(episodes.classes[..., None], rows.shape))


@given(draws())
def test_the_classes_of_an_episode_differ(case: tuple[I64, Drawing]) -> None:
    labels, drawing = case
    episodes = sample_episodes(labels, **drawing)
    assert all(len(set(classes)) == drawing["n_way"] for classes in episodes.classes.tolist())


@given(draws())
def test_shapes_and_types_are_those_of_the_contract(case: tuple[I64, Drawing]) -> None:
    labels, drawing = case
    episodes = sample_episodes(labels, **drawing)
    n_episodes, n_way = drawing["n_episodes"], drawing["n_way"]
    assert episodes.classes.shape == (n_episodes, n_way)
    assert episodes.support.shape == (n_episodes, n_way, drawing["n_shot"])
    assert episodes.query.shape == (n_episodes, n_way, drawing["n_query"])
    assert all(array.dtype == np.int64 and array.flags.c_contiguous for array in arrays(episodes))
    assert (episodes.seed, episodes.sampling) == (drawing["seed"], "with replacement")


@given(draws())
def test_the_fast_sampler_equals_one_draw_at_a_time(case: tuple[I64, Drawing]) -> None:
    labels, drawing = case
    drawn = sample_episodes(labels, **drawing)
    classes, support, query = reference.draw_episodes(labels.tolist(), **drawing)
    assert drawn.classes.tolist() == classes
    assert drawn.support.tolist() == support
    assert drawn.query.tolist() == query


@given(draws(), st.integers(1, 30))
def test_an_episode_does_not_depend_on_how_many_are_drawn(case: tuple[I64, Drawing], n_more: int) -> None:
    labels, drawing = case
    n_episodes = drawing["n_episodes"]
    few = sample_episodes(labels, **drawing)
    drawing["n_episodes"] += n_more
    many = sample_episodes(labels, **drawing)
    for of_few, of_many in zip(arrays(few), arrays(many), strict=True):
        np.testing.assert_array_equal(of_few, of_many[:n_episodes])


def test_the_first_hundred_of_ten_thousand_are_the_hundred() -> None:
    labels = even_labels(n_classes=20, n_per_class=600)
    drawing = Drawing(n_way=5, n_shot=5, n_query=15, n_episodes=10_000, seed=0)
    many = sample_episodes(labels, **drawing)
    drawing["n_episodes"] = 100
    few = sample_episodes(labels, **drawing)
    for of_few, of_many in zip(arrays(few), arrays(many), strict=True):
        np.testing.assert_array_equal(of_few, of_many[:100])


def test_queries_are_the_same_for_every_shot_and_supports_nest() -> None:
    labels = even_labels(n_classes=7, n_per_class=40)
    one, five, twenty = (
        sample_episodes(labels, n_way=5, n_shot=n_shot, n_query=15, n_episodes=200, seed=3)
        for n_shot in (1, 5, 20)
    )
    for fewer, more in ((one, five), (five, twenty)):
        np.testing.assert_array_equal(fewer.classes, more.classes)
        np.testing.assert_array_equal(fewer.query, more.query)
        np.testing.assert_array_equal(fewer.support, more.support[:, :, : fewer.n_shot])
    assert queries_sha256(one) == queries_sha256(twenty)
    assert episodes_sha256(one) != episodes_sha256(twenty)


@given(draws())
def test_rows_in_another_order_give_the_same_images_by_rank(case: tuple[I64, Drawing]) -> None:
    labels, drawing = case
    shuffled = np.random.default_rng(drawing["seed"]).permutation(labels)
    before, after = sample_episodes(labels, **drawing), sample_episodes(shuffled, **drawing)
    np.testing.assert_array_equal(before.classes, after.classes)
    for one, other in ((before.support, after.support), (before.query, after.query)):
        np.testing.assert_array_equal(rank_in_class(labels)[one], rank_in_class(shuffled)[other])


def rank_in_class(labels: I64) -> I64:
    """(N,) int64: how many earlier rows are of the same class."""
    return np.array([np.count_nonzero(labels[:row] == labels[row]) for row in range(len(labels))])


@given(st.permutations(range(6)), st.integers(0, 2**63 - 1))
def test_classes_of_one_size_may_change_their_numbers(numbers: list[int], seed: int) -> None:
    labels = even_labels(n_classes=6, n_per_class=5)
    renumbered = np.array(numbers)[labels]
    drawing = Drawing(n_way=4, n_shot=2, n_query=3, n_episodes=5, seed=seed)
    before, after = sample_episodes(labels, **drawing), sample_episodes(renumbered, **drawing)
    # Drawn is a number; which rows bear it is the labels' business.
    np.testing.assert_array_equal(before.classes, after.classes)
    np.testing.assert_array_equal(before.query % 5, after.query % 5)
    np.testing.assert_array_equal(renumbered[after.query], labels[before.query])


@given(draws())
def test_class_names_are_for_messages_alone(case: tuple[I64, Drawing]) -> None:
    labels, drawing = case
    names = tuple(f"class {c}" for c in range(labels.max() + 1))
    assert_same(sample_episodes(labels, **drawing), sample_episodes(labels, class_names=names, **drawing))


def test_another_seed_gives_other_episodes() -> None:
    labels = even_labels(n_classes=10, n_per_class=30)
    digests = {
        episodes_sha256(sample_episodes(labels, n_way=5, n_shot=1, n_query=5, n_episodes=20, seed=seed))
        for seed in (0, 1, 2, 2**32, 2**63 - 1)
    }
    assert len(digests) == 5


@pytest.mark.parametrize("n_way", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("block", [1, 2, 3, 5, 8])
def test_the_block_size_changes_nothing(n_way: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = even_labels(n_classes=7, n_per_class=9)
    drawing = Drawing(n_way=n_way, n_shot=2, n_query=3, n_episodes=17, seed=11)
    whole = sample_episodes(labels, **drawing)
    monkeypatch.setattr(module, "BLOCK", block)
    assert_same(sample_episodes(labels, **drawing), whole)


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_episodes_on_either_side_of_a_block_equal_the_reference(beyond: int) -> None:
    labels = even_labels(n_classes=4, n_per_class=3)
    drawing = Drawing(n_way=3, n_shot=1, n_query=1, n_episodes=module.BLOCK + beyond, seed=5)
    drawn = sample_episodes(labels, **drawing)
    classes, support, query = reference.draw_episodes(labels.tolist(), **drawing)
    assert (drawn.classes.tolist(), drawn.support.tolist(), drawn.query.tolist()) == (classes, support, query)


def test_the_reference_computes_published_philox_words() -> None:
    # Known answers of Random123: philox4x64, 10 rounds, counter and key zero.
    words = reference.philox(0, (0, 0))
    assert [f"{word:016x}" for word in words] == [
        "16554d9eca36314c",
        "db20fe9d672d0fdc",
        "d7e772cee186176b",
        "7e68b68aec7ba23b",
    ]


# The rule never changes: the first fifty episodes of each equal tests/reference.py.
TWENTY_OF_600 = even_labels(n_classes=20, n_per_class=600)
DIGITS = np.repeat(np.arange(10), [178, 182, 177, 183, 181, 182, 181, 179, 174, 180])
MIXED = np.array([2, 0, 1, 0, 2, 1, 1, 2, 0, 0, 2, 1, 3, 3, 3])
GOLDEN = [
    (
        TWENTY_OF_600,
        Drawing(n_way=5, n_shot=1, n_query=15, n_episodes=10_000, seed=0),
        "f0ac637cb7139f56a88f0a22c82f05876ff34ca7f3073bfbd0d40b55557df221",
        "35e78ebf275d4092d92f0ae4096abbdd6dcd13bfdd94dcd358e556f0fd483e0a",
    ),
    (
        TWENTY_OF_600,
        Drawing(n_way=5, n_shot=5, n_query=15, n_episodes=10_000, seed=0),
        "c61d322433a04e4d446f524fdfb9f1e4e826234eac6e4c0febd16b9824539e85",
        "35e78ebf275d4092d92f0ae4096abbdd6dcd13bfdd94dcd358e556f0fd483e0a",
    ),
    (
        DIGITS,
        Drawing(n_way=5, n_shot=1, n_query=15, n_episodes=10_000, seed=0),
        "4711f6d2cc857d66e0431570ebedcc2e88334e9df2e960d907bdbf0c0985028d",
        "ac6c59c89b2df9941cef9a50f210b31e9fc7329019efc655b76f5d005bfd7476",
    ),
    (
        DIGITS,
        Drawing(n_way=5, n_shot=5, n_query=15, n_episodes=10_000, seed=2**63 - 1),
        "8b9bc8bc063a4b36bbf7d45c0c7b91dad78545df317d8cc22618cf9b27b32024",
        "2eff97f0a96359508744c39c6a99130c8e74631fb065b423cd80703a49abb86c",
    ),
    (
        MIXED,
        Drawing(n_way=3, n_shot=2, n_query=1, n_episodes=50, seed=7),
        "2bd9cc70595b916056b2c743a34ab7846453d8a0f2ef8ac920b6037e05b1e97a",
        "ded4d65541ca504ee56b6648eaab39e6e94009480fc3fc075dc6b4a8568f3f21",
    ),
]


@pytest.mark.parametrize(("labels", "drawing", "of_episodes", "of_queries"), GOLDEN)
def test_golden_digests_have_not_changed(
    labels: I64, drawing: Drawing, of_episodes: str, of_queries: str
) -> None:
    drawn = sample_episodes(labels, **drawing)
    assert (episodes_sha256(drawn), queries_sha256(drawn)) == (of_episodes, of_queries)


def chance_of_the_worst(counts: I64, *, n: int, p: float) -> float:
    """How likely a count as far off as the worst of these is, where each is Binomial(n, p) (Bonferroni)."""
    tails = np.minimum(stats.binom.cdf(counts, n, p), stats.binom.sf(counts - 1, n, p))
    return min(1.0, float(2 * tails.min() * counts.size))


def evenness() -> dict[str, float]:
    """That chance, for classes and for images, of 10,000 episodes of 5 of 20 classes of 600 images."""
    n = 10_000
    drawn = sample_episodes(TWENTY_OF_600, n_way=5, n_shot=5, n_query=15, n_episodes=n, seed=1)
    per_class = {f"way {way}": np.bincount(drawn.classes[:, way], minlength=20) for way in range(5)}
    chances = {name: chance_of_the_worst(counts, n=n, p=1 / 20) for name, counts in per_class.items()}
    any_way = np.bincount(drawn.classes.ravel(), minlength=20)
    # An image serves at most once in an episode, so its count is binomial too.
    support = np.bincount(drawn.support.ravel(), minlength=12_000)
    query = np.bincount(drawn.query.ravel(), minlength=12_000)
    return chances | {
        "classes": chance_of_the_worst(any_way, n=n, p=5 / 20),
        "support images": chance_of_the_worst(support, n=n, p=5 / 20 * 5 / 600),
        "query images": chance_of_the_worst(query, n=n, p=5 / 20 * 15 / 600),
    }


LEAST_CHANCE = 1e-3


def test_classes_and_images_come_up_evenly() -> None:
    assert min(evenness().values()) > LEAST_CHANCE, evenness()


def one_less(bits: npt.NDArray[np.uint64], bound: npt.NDArray[np.uint64]) -> I64:
    """A wrong bound: the last of what is left is never drawn."""
    less = np.maximum(bound - np.uint64(1), np.uint64(1))
    return np.asarray((bits >> np.uint64(32)) * less >> np.uint64(32), dtype=np.int64)


def eight_bits(bits: npt.NDArray[np.uint64], bound: npt.NDArray[np.uint64]) -> I64:
    """Too few bits: of 600 images 344 are never drawn first."""
    return np.asarray((bits >> np.uint64(56)) * bound >> np.uint64(8), dtype=np.int64)


def slightly_low(bits: npt.NDArray[np.uint64], bound: npt.NDArray[np.uint64]) -> I64:
    """Uniform numbers to the power 1.1."""
    unit = (bits >> np.uint64(11)) / 2**53
    return np.asarray(unit**1.1 * bound, dtype=np.int64)


@pytest.mark.parametrize("wrong", [one_less, eight_bits, slightly_low])
def test_that_evenness_is_not_met_by_a_biased_sampler(
    wrong: Callable[[npt.NDArray[np.uint64], npt.NDArray[np.uint64]], I64], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_bounded", wrong)
    assert min(evenness().values()) < LEAST_CHANCE


def chance_of_these_orders(picks: I64, *, n_items: int) -> float:
    """Chi-square test that every ordered choice of distinct items is as likely as any other.

    Args:
        picks: (n, m) int64 below n_items, m distinct ones in each row.
    """
    n_orders = int(np.prod(np.arange(n_items, n_items - picks.shape[1], -1)))
    _, counts = np.unique(picks, axis=0, return_counts=True)
    all_counts = np.concatenate([counts, np.zeros(n_orders - len(counts), dtype=counts.dtype)])
    return float(stats.chisquare(all_counts).pvalue)


def ordered_choices() -> tuple[I64, I64]:
    """Classes (n, 3) of 4; and (n, 3) of the 4 images of a class: two queries, then the support."""
    labels = even_labels(n_classes=4, n_per_class=4)
    drawn = sample_episodes(labels, n_way=3, n_shot=1, n_query=2, n_episodes=6_000, seed=2)
    images = np.concatenate([drawn.query, drawn.support], axis=2).reshape(-1, 3) % 4
    return drawn.classes, images


def test_every_order_of_classes_and_of_images_is_equally_likely() -> None:
    classes, images = ordered_choices()
    assert chance_of_these_orders(classes, n_items=4) > LEAST_CHANCE
    assert chance_of_these_orders(images, n_items=4) > LEAST_CHANCE


def test_that_is_not_met_where_draws_share_their_random_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    raw_bits = module._raw_bits

    def one_stream(*, seed: int, stream: int, first: int, count: int) -> npt.NDArray[np.uint64]:
        return raw_bits(seed=seed, stream=min(stream, 1), first=first, count=count)

    monkeypatch.setattr(module, "_raw_bits", one_stream)
    classes, images = ordered_choices()
    assert chance_of_these_orders(classes, n_items=4) > LEAST_CHANCE  # these have one stream as it is
    assert chance_of_these_orders(images, n_items=4) < LEAST_CHANCE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_way": 4}, r"the split has 3 classes, fewer than n_way = 4"),
        (
            {"n_shot": 4},
            r"class 'owl' has 5 images, fewer than n_shot \+ n_query = 4 \+ 3 \(2 such classes\)",
        ),
        ({"n_query": 5}, r"class 'owl' has 5 images, fewer than n_shot \+ n_query = 1 \+ 5; ask for fewer"),
        ({"n_way": 0}, r"n_way is 0, needed at least 1"),
        ({"n_shot": 0}, r"n_shot is 0, needed at least 1"),
        ({"n_query": -1}, r"n_query is -1, needed at least 1"),
        ({"n_episodes": 0}, r"n_episodes is 0, needed at least 1"),
        ({"seed": -1}, r"seed is -1, needed 0 to 2\*\*63 - 1"),
        ({"seed": 2**63}, r"seed is 9223372036854775808, needed 0"),
    ],
)
def test_what_the_labels_cannot_give_is_said(change: dict[str, int], message: str) -> None:
    labels = np.repeat(np.arange(3), [6, 5, 8])
    arguments = {"n_way": 2, "n_shot": 1, "n_query": 3, "n_episodes": 2, "seed": 0, **change}
    with pytest.raises(EpisodeError, match=message):
        sample_episodes(labels, class_names=("hen", "owl", "tit"), **arguments)


def test_a_class_without_a_name_is_named_by_its_number() -> None:
    with pytest.raises(EpisodeError, match=r"class 1 has 0 images"):
        sample_episodes(np.array([0, 0, 2, 2]), n_way=2, n_shot=1, n_query=1, n_episodes=1, seed=0)


def test_a_refusal_is_a_value_error_and_one_that_the_commands_print() -> None:
    assert issubclass(EpisodeError, ValueError)
    assert issubclass(EpisodeError, FsnlError)


def test_all_rows_of_a_class_may_be_needed() -> None:
    drawn = sample_episodes(MIXED, n_way=4, n_shot=2, n_query=1, n_episodes=30, seed=0)
    rows = np.concatenate([drawn.support, drawn.query], axis=2)[drawn.classes == 3]
    assert {tuple(sorted(picks)) for picks in rows.tolist()} == {(12, 13, 14)}
