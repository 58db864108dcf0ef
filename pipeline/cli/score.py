"""fsnl-score: accuracy of few-shot classification over stored embeddings."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from fsnl.pipeline.cli.common import CONTEXT, Command, example, note

if TYPE_CHECKING:
    from fsnl.cache.reader import FeatureStore
    from fsnl.cache.schema import RunSummary

FORMATS = ("table", "json", "csv", "markdown", "latex")
EPISODE_OPTIONS = ("way", "shot", "query", "episodes", "seed", "without-replacement")


@click.command(
    cls=Command,
    context_settings=CONTEXT,
    epilog=example(
        "fsnl-score cifar.h5 --shot 1 --shot 5 --classifier 1nn --classifier attention --format json"
    ),
)
@click.argument("stores", nargs=-1, metavar="[STORE]...", type=click.Path(path_type=Path))
@click.option("--way", type=click.IntRange(min=1), default=5, help="Classes per episode.")
@click.option(
    "--shot",
    "shots",
    type=click.IntRange(min=1),
    multiple=True,
    default=(1, 5),
    help="Support images per class; repeatable.",
)
@click.option("--query", type=click.IntRange(min=1), default=15, help="Query images per class.")
@click.option("--episodes", type=click.IntRange(min=1), default=10_000, help="How many episodes.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, help="What they are drawn from.")
@click.option(
    "--without-replacement",
    is_flag=True,
    help="Use each image in one episode at most; --episodes is then how many at most.",
)
@click.option("--split", default="test", help="Split of the stores.")
@click.option(
    "--episodes-file",
    "episode_files",
    type=click.Path(path_type=Path),
    multiple=True,
    show_default="none",
    help="Use these episodes instead of drawing; repeatable, not together with "
    "--way, --shot, --query, --episodes, --seed, --without-replacement.",
)
@click.option(
    "--classifier",
    "classifiers",
    multiple=True,
    default=("1nn", "attention"),
    help="1nn (nearest support by squared L2), attention (softmax of cosines, summed per class), "
    "attention-max (class of the largest cosine); repeatable.",
)
@click.option("--threads", type=click.IntRange(min=1), show_default="one per core", help="Worker threads.")
@click.option(
    "--format", "output_format", type=click.Choice(FORMATS), default="table", help="What is printed."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    show_default="none",
    help="Result file: every prediction, for later comparison.",
)
@click.option("--force", is_flag=True, help="Replace what lies at --out.")
@click.version_option(package_name="fsnl", message="%(prog)s %(version)s")
@click.pass_context
def main(
    ctx: click.Context,
    *,
    stores: tuple[Path, ...],
    way: int,
    shots: tuple[int, ...],
    query: int,
    episodes: int,
    seed: int,
    without_replacement: bool,
    split: str,
    episode_files: tuple[Path, ...],
    classifiers: tuple[str, ...],
    threads: int | None,
    output_format: str,
    out: Path | None,
    force: bool,
) -> None:
    """Score few-shot classification over the embeddings of each STORE.

    Accuracy is correct queries / all queries over many episodes of --way classes. Without STORE the newest
    one in $FSNL_HOME is scored. The same seed gives the same episodes for every store of the same images.
    """
    _check_episode_options(ctx, episode_files)
    from fsnl.cache.hdf5 import check_vacant
    from fsnl.cache.reader import open_store
    from fsnl.cache.result_file import write_result_file
    from fsnl.pipeline.score import EpisodePlan, score_stores

    if out is not None:
        check_vacant(out, overwrite=force)
    plan = EpisodePlan(
        n_way=way,
        shots=shots,
        n_query=query,
        n_episodes=episodes,
        seed=seed,
        without_replacement=without_replacement,
    )
    result = score_stores(
        [open_store(path) for path in stores] if stores else [_newest()],
        episodes=episode_files or plan,
        classifiers=classifiers,
        split=split,
        n_threads=threads,
    )
    if out is not None:
        write_result_file(out, result, overwrite=force)
    click.echo(_formatted([run.summary for run in result.runs], output_format))


def _check_episode_options(ctx: click.Context, episode_files: tuple[Path, ...]) -> None:
    if not episode_files:
        return
    for option in ctx.command.params:
        name = (option.opts[0]).lstrip("-")
        given = option.name and ctx.get_parameter_source(option.name) is not ParameterSource.DEFAULT
        if name in EPISODE_OPTIONS and given:
            msg = f"--{name} cannot go with --episodes-file: the file says which episodes"
            raise click.UsageError(msg, ctx)


def _newest() -> "FeatureStore":
    from fsnl.cache.home import newest_store

    store = newest_store()
    note(f"scoring {store.path}")
    return store


def _formatted(runs: "list[RunSummary]", output_format: str) -> str:
    from fsnl.pipeline.report import csv, json, table

    writers = {
        "table": table.to_table,
        "json": json.to_json,
        "csv": csv.to_csv,
        "markdown": table.to_markdown,
        "latex": table.to_latex,
    }
    return writers[output_format](runs)
