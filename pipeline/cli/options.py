"""Options that several commands have, in the same words."""

from pathlib import Path

import click

PATH = click.Path(path_type=Path)

root_option = click.option("--root", type=PATH, show_default="none", help="Where the images are.")
csv_option = click.option(
    "--csv",
    type=PATH,
    show_default="none",
    help="Of folder: a list of its images, filename,label[,split], with paths from ROOT.",
)
episodes_option = click.option(
    "--episodes",
    type=click.IntRange(min=1, max=2**40),
    default=10_000,
    help="How many episodes.",
)
device_option = click.option("--device", default="auto", help="auto, cpu, cuda, cuda:INDEX or mps.")
take_over_option = click.option(
    "--take-over", is_flag=True, help="Go on although a run on another host seems to write --out."
)
