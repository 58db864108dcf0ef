"""fsnl-sample: draw episodes once, to score many stores on the very same."""

from pathlib import Path

import click

from fsnl.pipeline.cli.common import CONTEXT, Command, example, note, refuse_same_file
from fsnl.pipeline.cli.options import episodes_option


@click.command(
    cls=Command,
    context_settings=CONTEXT,
    epilog=example("fsnl-sample cifar.h5 --way 5 --shot 5 --seed 1 --out episodes.h5"),
)
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--way", type=click.IntRange(min=1), default=5, help="Classes per episode.")
@click.option("--shot", type=click.IntRange(min=1), default=1, help="Support images per class.")
@click.option("--query", type=click.IntRange(min=1), default=15, help="Query images per class.")
@episodes_option
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, help="What they are drawn from.")
@click.option(
    "--without-replacement",
    is_flag=True,
    help="Use each image in one episode at most; --episodes is then how many at most.",
)
@click.option("--split", default="test", help="Split of the store.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Episode file to write.")
@click.option("--force", is_flag=True, help="Replace what lies at --out.")
@click.version_option(package_name="fsnl", message="%(prog)s %(version)s")
def main(
    store: Path,
    way: int,
    shot: int,
    query: int,
    episodes: int,
    seed: int,
    without_replacement: bool,
    split: str,
    out: Path,
    force: bool,
) -> None:
    """Draw few-shot episodes from the labels of STORE and write them to an HDF5 episode file.

    Episodes depend on labels, parameters and seed alone: any store of the same images gives the same.
    """
    from fsnl.cache.episode_file import EpisodeFile, write_episode_file
    from fsnl.cache.fingerprint import episodes_sha256
    from fsnl.cache.hdf5 import check_vacant
    from fsnl.cache.reader import open_store
    from fsnl.pipeline.episodes import sample_episodes, sample_episodes_without_replacement

    check_vacant(out, overwrite=force)
    refuse_same_file(out, (store,))
    labelled = open_store(store).features(split)
    sample = sample_episodes_without_replacement if without_replacement else sample_episodes
    drawn = sample(
        labelled.labels,
        n_way=way,
        n_shot=shot,
        n_query=query,
        n_episodes=episodes,
        seed=seed,
        class_names=labelled.class_names,
    )
    content = EpisodeFile(episodes=drawn, split=split, labels_sha256=labelled.labels_sha256)
    write_episode_file(out, content, overwrite=force)
    most = f" of at most {episodes:,}" if without_replacement else ""
    note(f"{drawn.n_episodes:,} episodes{most}, {episodes_sha256(drawn)}")
    click.echo(out)
