"""Each kind of network, built as planned and made ready to run."""

from collections.abc import Callable
from dataclasses import replace

from fsnl.cache.schema import EncoderInfo, Preprocessing
from fsnl.pipeline.encoders.base import Encoder
from fsnl.pipeline.encoders.network import choose_device, network_encoder
from fsnl.pipeline.encoders.pooling import Pool
from fsnl.pipeline.encoders.readout import Backbone, Readout
from fsnl.pipeline.encoders.specs import Spec, parse_small
from fsnl.pipeline.encoders.weights import Weights


def network_of_plan(
    spec: Spec,
    info: EncoderInfo,
    preprocessing: Preprocessing,
    weights: Weights,
    *,
    layer: str,
    pool: Pool,
    device: str,
    note: Callable[[str], None],
) -> Encoder:
    """Build, fill and try one network; arguments and errors are those of `registry.load_encoder`."""
    chosen = choose_device(device)
    if weights.facts is not None and weights.facts.note is not None:
        note(weights.facts.note)
    backbone = _backbone(spec, weights=weights, image_size=preprocessing.crop)
    for line in backbone.notes:
        note(line)
    if chosen.type == "cuda" and info.precision == "fp32":
        note("computing in fp32, as on a CPU; --precision bf16 is faster on this device")
    network = Readout(backbone, layer=layer, pool=pool, name=spec.name)
    return network_encoder(network, info=info, preprocessing=preprocessing, device=chosen)


def _backbone(spec: Spec, *, weights: Weights, image_size: int) -> Backbone:
    if spec.kind == "checkpoint" and weights.facts is not None:
        _, is_torchvision, network = weights.facts.encoder.rpartition("torchvision:")
        # it says what it is; its name stays
        spec = replace(spec, kind="torchvision" if is_torchvision else "fsnl", network=network)
    if spec.kind == "torchvision":
        from fsnl.pipeline.encoders.torchvision import torchvision_backbone

        return torchvision_backbone(spec.network, image_size=image_size, weights=weights, encoder=spec.name)
    if spec.kind == "timm":
        from fsnl.pipeline.encoders.timm import timm_backbone

        return timm_backbone(spec.network, image_size=image_size, weights=weights, encoder=spec.name)
    if spec.kind == "checkpoint" and spec.path is not None:
        from fsnl.pipeline.encoders.checkpoint import checkpoint_backbone

        return checkpoint_backbone(spec.path, name=spec.name, image_size=image_size)
    if spec.kind == "python" and spec.path is not None:
        from fsnl.pipeline.encoders.user_function import function_backbone

        return function_backbone(spec.path, spec.function, weights=weights, encoder=spec.name)
    from fsnl.pipeline.encoders.small_networks import small_backbone

    return small_backbone(parse_small(spec.network), weights=weights, encoder=spec.name)
