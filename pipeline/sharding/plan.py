"""What could change a bit of the result, settled once and obeyed by every process and resumption."""

from collections.abc import Mapping
from dataclasses import replace

from fsnl.cache.errors import MismatchError
from fsnl.cache.fingerprint import header_identity
from fsnl.cache.schema import StoreHeader
from fsnl.cache.shards import ShardFolder, ShardPlan
from fsnl.pipeline.encoders.base import Encoder
from fsnl.pipeline.sharding.identity import differences
from fsnl.pipeline.sharding.work import Note, Work

_ADVICE = "use another --out, or --force to begin again"


def settle(work: Work, folder: ShardFolder, *, job: str) -> tuple[Encoder, StoreHeader, ShardPlan]:
    """Load the encoder, and obey the plan that lies in the folder, or make one.

    A forced run goes on only with what another forced one of the same kind left; else it begins again.

    Raises:
        MismatchError: the folder's shards are of something else; every field that differs is named.
        EncoderError: the encoder cannot be loaded.
    """
    plan = folder.read_plan()
    if plan is not None and work.force and not _begun_alike(plan, work):
        folder.clear()
        plan = None
    device = work.device
    if plan is not None:
        folder.write_plan(replace(plan, job=""))  # until it is settled, the other ranks wait
        device = plan.device if device == "auto" else device
    encoder, header = work.encoder.load(device)
    differ = [] if plan is None else _differences(plan, header, device=encoder.device)
    if differ and work.force:
        folder.clear()
        plan = None
    if plan is None:
        plan = _new_plan(work, encoder, header)
    else:
        _refuse(differ, folder)
        if work.batch_size not in (None, plan.batch_size):
            work.note(f"batch size {plan.batch_size}, as this store was begun")
        plan = replace(plan, environment=_joined(plan.environment, header.environment, note=work.note))
    plan = replace(plan, job=job)
    folder.write_plan(plan)
    return encoder, replace(header, environment=plan.environment), plan


def check_plan(plan: ShardPlan, folder: ShardFolder, header: StoreHeader, *, device: str) -> None:
    """Refuse to add to shards of something else.

    Raises:
        MismatchError: every field that differs is named.
    """
    _refuse(_differences(plan, header, device=device), folder)


def kind(device: str) -> str:
    """`cuda` of `cuda:1`."""
    return device.partition(":")[0]


def _begun_alike(plan: ShardPlan, work: Work) -> bool:
    same_device = work.device == "auto" or kind(work.device) == plan.device
    return plan.replaces and same_device and work.batch_size in (None, plan.batch_size)


def _new_plan(work: Work, encoder: Encoder, header: StoreHeader) -> ShardPlan:
    batch_size = work.batch_size or encoder.batch_size
    return ShardPlan(
        header=header_identity(header),
        batch_size=batch_size,
        rows_per_shard=batch_size * max(1, work.shard_rows // batch_size),
        device=kind(encoder.device),
        environment={**header.environment, "batch_size": batch_size},
        replaces=work.force,
        job="",
    )


def _differences(plan: ShardPlan, header: StoreHeader, *, device: str) -> list[str]:
    differ = differences(plan.header, header_identity(header))
    if kind(device) != plan.device:
        differ.append(f"device is {plan.device}, asked {kind(device)}")
    return differ


def _refuse(differ: list[str], folder: ShardFolder) -> None:
    if differ:
        reason = f"holds an unfinished store of something else: {'; '.join(differ)}; {_ADVICE}"
        raise MismatchError(folder.path, reason)


def _joined(
    before: Mapping[str, str | int | None], now: Mapping[str, str | int | None], *, note: Note
) -> dict[str, str | int | None]:
    """The environments of all runs that made shards; where one differs, the user is told, and it is kept."""
    joined = dict(before)
    for name, value in now.items():
        earlier = str(before.get(name)).split(", ")
        if name != "batch_size" and str(value) not in earlier:
            note(f"warning: begun with {name} {before.get(name)}, now {value}: last digits may differ")
            joined[name] = ", ".join([*earlier, str(value)])
    return joined
