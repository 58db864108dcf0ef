"""fsnl-score: accuracy of few-shot classification over stored embeddings."""

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from fsnl.pipeline.cli.common import CONTEXT, Command, example, note, refuse_same_file
from fsnl.pipeline.cli.options import episodes_option
from fsnl.pipeline.cli.progress import Progress
from fsnl.pipeline.cli.score_help import CLASSIFIERS, PROTOCOL, TRANSFORMS
from fsnl.pipeline.protocol import PROTOCOLS

if TYPE_CHECKING:
    from fsnl.cache.reader import FeatureStore
    from fsnl.cache.schema import RunSummary
    from fsnl.pipeline.classifier_names import Names

FORMATS = ("table", "json", "csv", "markdown", "latex")
EPISODE_OPTIONS = ("way", "shot", "query", "episodes", "seed", "without-replacement")


@click.command(
    cls=Command,
    context_settings=CONTEXT,
    epilog="\n\n".join(
        [
            CLASSIFIERS,
            TRANSFORMS,
            PROTOCOL,
            example(
                "fsnl-score cifar.h5 --shot 1 --shot 5 --classifier 1nn --classifier attention --format json",
                "fsnl-score cifar.h5 --classifier prototype --transform none --transform center:train,l2",
            ),
        ]
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
@episodes_option
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
    metavar="NAME",
    help="How queries are classified, see below; repeatable.",
)
@click.option(
    "--transform",
    "transforms",
    multiple=True,
    default=("none",),
    metavar="CHAIN",
    help="What is done to embeddings first, steps with commas between, see below; repeatable.",
)
@click.option(
    "--protocol",
    type=click.Choice(list(PROTOCOLS)),
    show_default="none",
    help="Runs of a published protocol, see below; sets ways, shots, queries, episodes, classifiers and "
    "transforms.",
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
    transforms: tuple[str, ...],
    protocol: str | None,
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
    if protocol is not None:
        _check_protocol_options(ctx, protocol)
    from fsnl.cache.hdf5 import check_vacant
    from fsnl.cache.reader import open_store
    from fsnl.cache.result_file import write_result_file
    from fsnl.pipeline.score import EpisodePlan, score_stores

    if out is not None:
        check_vacant(out, overwrite=force)
        refuse_same_file(out, (*stores, *episode_files, *classifiers, *transforms))
    plan = EpisodePlan(
        n_way=way,
        shots=shots,
        n_query=query,
        n_episodes=episodes,
        seed=seed,
        without_replacement=without_replacement,
    )
    wanted: Names = classifiers
    if protocol is not None:
        chosen = PROTOCOLS[protocol]
        wanted, transforms = chosen.classifiers, (chosen.transform,)
        plan = replace(
            plan,
            n_way=chosen.n_way,
            shots=tuple(chosen.classifiers),
            n_query=chosen.n_query,
            n_episodes=chosen.n_episodes,
        )
    opened = [open_store(path) for path in stores] if stores else [_newest()]
    with _warnings_as_notes(), Progress() as progress:
        result = score_stores(
            opened,
            episodes=episode_files or plan,
            classifiers=wanted,
            transforms=transforms,
            split=split,
            n_threads=threads,
            progress=progress.add if progress.shown else None,
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


def _check_protocol_options(ctx: click.Context, protocol: str) -> None:
    """Refuse what would make it another protocol; saying again what it says is fine."""
    chosen = PROTOCOLS[protocol]
    fixed = {
        "way": chosen.n_way,
        "shots": tuple(chosen.classifiers),
        "query": chosen.n_query,
        "episodes": chosen.n_episodes,
        "without_replacement": False,
        "episode_files": (),
        "classifiers": None,
        "transforms": None,
    }
    for option in ctx.command.params:
        name = option.name or ""
        given = ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
        if name in fixed and given and ctx.params[name] != fixed[name]:
            msg = f"{option.opts[0]} cannot go with --protocol {protocol}, which says what it is"
            raise click.UsageError(msg, ctx)


@contextlib.contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """What the stages warn of, as lines for the user."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        finally:
            for warning in caught:
                note(f"note: {warning.message}")


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
