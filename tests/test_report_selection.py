"""Which runs share a figure, which of them leads, and which pairs answer a question."""

from results import Made, make_results

from fsnl.pipeline.compare import EpisodeAccuracies, accuracies_of, compare
from fsnl.pipeline.report.selection import MOST_ROWS, Panel, best_panels, leading, panels, questions


def made(*runs: Made) -> list[EpisodeAccuracies]:
    return accuracies_of(make_results(runs), source="results.h5")


def grid_of_runs() -> list[EpisodeAccuracies]:
    """Two encoders, three shots, two classifiers."""
    return made(
        *(
            Made(encoder=encoder, store=f"{encoder}.h5", n_shot=shot, classifier=classifier, skill=skill)
            for encoder, skill in (("net-a", 0.5), ("net-b", 0.6))
            for shot in (20, 1, 5)
            for classifier in ("1nn", "attention")
        )
    )


def test_a_panel_holds_one_encoder_with_a_line_per_classifier_in_order_of_shots() -> None:
    runs = grid_of_runs()
    found = panels(runs)
    assert [(panel.title, list(panel.lines)) for panel in found] == [
        ("net-a", ["1nn", "attention"]),
        ("net-b", ["1nn", "attention"]),
    ]
    assert found[0].lines["1nn"] == [2, 4, 0]
    assert sorted(i for panel in found for line in panel.lines.values() for i in line) == list(range(12))


def test_with_one_classifier_the_lines_are_encoders() -> None:
    found = panels(made(*(Made(encoder=name, n_shot=k) for name in ("net-a", "net-b") for k in (1, 5))))
    assert found == [Panel("1nn", {"net-a": [0, 1], "net-b": [2, 3]})]


def test_the_leading_run_is_the_best_with_five_shots_or_the_nearest_number() -> None:
    runs = made(Made(n_shot=1, skill=0.9), Made(n_shot=5), Made(n_shot=5, classifier="attention", skill=0.6))
    assert leading(panels(runs)[0], runs) == 2
    runs = made(Made(n_shot=1), Made(n_shot=10, skill=0.9))
    assert leading(panels(runs)[0], runs) == 0


def test_of_many_panels_the_best_are_kept_in_their_order() -> None:
    runs = made(
        *(
            Made(encoder=f"net-{i}", skill=skill, classifier=c)
            for i, skill in enumerate((0.6, 0.3, 0.7))
            for c in ("1nn", "attention")
        )
    )
    kept, notes = best_panels(panels(runs), runs, most=2)
    assert [panel.title for panel in kept] == ["net-0", "net-2"]
    assert notes == ["Of 3 panels those with the most accurate runs are shown."]
    assert best_panels(panels(runs), runs, most=3)[1] == []


def test_pairs_that_differ_in_one_thing_answer_a_question() -> None:
    runs = grid_of_runs()
    encoders, *classifiers = questions(runs, compare(runs))
    assert encoders.title == "net-a against net-b"
    assert encoders.sides == ("net-b is better", "net-a is better")
    assert encoders.labels == [f"{k}-shot {c}" for k in (20, 1, 5) for c in ("1nn", "attention")]
    assert all(row.difference < 0 and row.on_episodes == "b" for row in encoders.rows)
    assert [len(one.rows) for one in classifiers] == [3, 3]
    assert [one.title.rpartition(", ")[2] for one in classifiers] == ["net-a", "net-b"]


def test_a_turned_row_is_the_same_comparison_seen_from_the_other_run() -> None:
    runs = made(Made(encoder="net-b", skill=0.6), Made(encoder="net-a"))
    (comparison,) = compare(runs)
    ((row,),) = ([*one.rows] for one in questions(runs, [comparison]))
    assert (row.a, row.b, row.difference) == (1, 0, -comparison.difference)
    assert (row.wins, row.losses) == (comparison.losses, comparison.wins)
    assert (comparison.on_episodes, row.on_episodes) == ("a", "b")


def test_with_more_than_two_each_is_set_against_the_best() -> None:
    runs = made(*(Made(encoder=f"net-{i}", skill=0.3 + 0.1 * i) for i in range(4)))
    (found,) = questions(runs, compare(runs))
    assert found.title == "encoders against net-3"
    assert found.labels == ["net-0", "net-1", "net-2"]


def test_of_many_rows_the_closest_to_the_best_are_kept() -> None:
    runs = made(*(Made(encoder=f"net-{i}", skill=0.3 + 0.01 * i) for i in range(MOST_ROWS + 4)))
    (found,) = questions(runs, compare(runs))
    assert (len(found.rows), found.left_out) == (MOST_ROWS, 3)
    assert found.labels[-1] == f"net-{MOST_ROWS + 2}"


def test_where_runs_differ_in_more_than_one_thing_every_pair_is_shown() -> None:
    runs = made(Made(), Made(encoder="net-b", classifier="attention", n_shot=5))
    (found,) = questions(runs, compare(runs))
    assert found.title == "every two runs"
    assert found.labels == ["net-a 1-shot 1nn - net-b 5-shot attention"]


def test_one_run_asks_nothing() -> None:
    assert questions(made(Made()), []) == []
