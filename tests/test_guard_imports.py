"""Who may import whom (design.md, section 1), read from the source of every module, lazy imports too."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest
from checkout import module_files

# Plain values and digests: NumPy and the standard library only, so anybody may import them.
VALUES = {"fsnl.cache.arrays", "fsnl.cache.errors", "fsnl.cache.fingerprint", "fsnl.cache.schema"}
PICKLES = {"fsnl.cache.pickles", "fsnl.cache.pickle_words", "fsnl.cache.numpy_files"}
PURE = {
    "fsnl.pipeline.episodes",
    "fsnl.pipeline.transforms",
    "fsnl.pipeline.classifiers",
    "fsnl.pipeline.statistics",
    "fsnl.pipeline.student_t",
    "fsnl.pipeline.differences",
}
ENCODING = {"fsnl.pipeline.datasets", "fsnl.pipeline.encoders", "fsnl.pipeline.cores"}
# Module or package -> the modules and packages of fsnl that it may import, beside itself. The longest name
# that fits a module counts; a new module of fsnl.pipeline has to be given its place here.
MAY_IMPORT = {
    "fsnl.cache": {"fsnl.cache"},
    **{module: VALUES for module in VALUES},
    **{module: VALUES | PURE for module in PURE},
    # Pickles of others, read with NumPy and the standard library only.
    **{module: VALUES | PICKLES for module in PICKLES},
    # How many cores there are: the standard library only.
    "fsnl.pipeline.cores": set(),
    # Users' code, run.
    "fsnl.pipeline.user_code": set(),
    "fsnl.pipeline.datasets": VALUES | PICKLES,
    "fsnl.pipeline.encoders": {
        *(*VALUES, "fsnl.cache.torch_files", "fsnl.pipeline.user_code"),
        *("fsnl.pipeline.datasets.base", "fsnl.pipeline.datasets.quiet", "fsnl.pipeline.cores"),
    },
    "fsnl.pipeline.sharding": {"fsnl.cache", *ENCODING},
    "fsnl.pipeline.extract": {"fsnl.cache", "fsnl.pipeline.sharding", *ENCODING},
    # Of the stages before it only who a process is; its few-shot check samples episodes and compares.
    "fsnl.pipeline.pretrain": {
        *("fsnl.cache", "fsnl.pipeline.sharding.ranks", "fsnl.pipeline.episodes", *ENCODING),
        *("fsnl.pipeline.classifiers.base", "fsnl.pipeline.classifiers.prototype_cosine"),
    },
    "fsnl.pipeline.score": {
        *("fsnl.cache", "fsnl.pipeline.cores", "fsnl.pipeline.finite", "fsnl.pipeline.fitting", *PURE),
        *("fsnl.pipeline.classifier_names", "fsnl.pipeline.user_classifier", "fsnl.pipeline.summary"),
    },
    # What a run is stored as.
    "fsnl.pipeline.summary": {"fsnl.cache", *PURE},
    # What a transform is fitted on, which embeddings cannot be scored, published protocols, users' code.
    "fsnl.pipeline.fitting": {"fsnl.cache", "fsnl.pipeline.finite", *PURE},
    "fsnl.pipeline.finite": VALUES,
    "fsnl.pipeline.protocol": set(),
    "fsnl.pipeline.user_classifier": VALUES | PURE | {"fsnl.pipeline.user_code"},
    "fsnl.pipeline.classifier_names": {"fsnl.pipeline.user_classifier", *VALUES, *PURE},
    "fsnl.pipeline.compare": {"fsnl.cache", *PURE},
    # Accuracies that others published, for comparison.
    "fsnl.pipeline.task_accuracies": {"fsnl.cache", "fsnl.pipeline.compare"},
    "fsnl.pipeline.reanalysis": {"fsnl.cache", *PURE},
    "fsnl.pipeline.import_features": {"fsnl.cache", "fsnl.pipeline.import_layouts", "fsnl.pipeline.sharding"},
    "fsnl.pipeline.import_layouts": {"fsnl.cache", "fsnl.pipeline.import_torch"},
    "fsnl.pipeline.import_torch": {"fsnl.cache.torch_files", *VALUES},
    "fsnl.pipeline.embedding_health": VALUES,
    "fsnl.pipeline.duplicates": VALUES | PURE,
    "fsnl.pipeline.inspect": {
        *("fsnl.cache", "fsnl.pipeline.datasets", "fsnl.pipeline.cores"),
        *("fsnl.pipeline.duplicates", "fsnl.pipeline.embedding_health"),
    },
    "fsnl.pipeline.report.inspection": {
        *("fsnl.cache", "fsnl.pipeline.inspect", "fsnl.pipeline.duplicates", "fsnl.pipeline.report"),
    },
    "fsnl.pipeline.report": {"fsnl.cache", "fsnl.pipeline.compare", "fsnl.pipeline.reanalysis", *PURE},
    "fsnl.pipeline.cli": {"fsnl.cache", "fsnl.pipeline"},
}
# Commands that encode images load torch and never FAISS; all others may load FAISS and never these.
EXTRACTION_COMMANDS = {
    *("fsnl.pipeline.cli.extract", "fsnl.pipeline.cli.pretrain"),
    "fsnl.pipeline.cli.import_",  # torch for files of torch alone
}
HEAVY = {"torch", "torchvision", "sklearn", "scipy.stats", "timm"}


@dataclass(frozen=True, slots=True)
class Import:
    """One import: the module that is loaded, and where that is asked for."""

    name: str
    line: int
    lazy: bool
    typing_only: bool


def within(name: str, parents: set[str]) -> bool:
    """Whether a module is one of these or lies inside one."""
    return any(name == parent or name.startswith(parent + ".") for parent in parents)


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(module_files()[module].read_text(encoding="utf-8"))


def calls(module: str) -> set[str]:
    """What a module calls, as written: `print`, `np.zeros`."""
    return {ast.unparse(node.func) for node in ast.walk(tree(module)) if isinstance(node, ast.Call)}


def _nodes(
    node: ast.AST, lazy: bool = False, typing_only: bool = False
) -> Iterator[tuple[ast.AST, bool, bool]]:
    for child in ast.iter_child_nodes(node):
        yield child, lazy, typing_only
        yield from _nodes(
            child,
            lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda),
            typing_only or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)),
        )


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = "." * node.level + (node.module or "")
        full = [f"{base}.{alias.name}" for alias in node.names]
        if within(base, {"fsnl"}):
            return [name if name in module_files() else base for name in full]
        # Is `stats` in `from scipy import stats` a module? The text does not tell: both are kept.
        return [base, *full]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
        return [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return []


def imports_in(source: ast.Module) -> tuple[Import, ...]:
    """All imports of a module, wherever they stand; `from package import submodule` loads that submodule."""
    return tuple(
        Import(name, getattr(node, "lineno", 0), lazy, typing_only)
        for node, lazy, typing_only in _nodes(source)
        for name in dict.fromkeys(_imported(node))
    )


@cache
def imports(module: str) -> tuple[Import, ...]:
    return imports_in(tree(module))


def loads(root: str) -> dict[str, str]:
    """All that a module can load, by name, with the chain of modules that leads there."""
    chains = {root: root}
    waiting = [root]
    while waiting:
        module = waiting.pop()
        parents = [module.rpartition(".")[0]] if module.count(".") > 1 else []
        for name in [*parents, *(i.name for i in imports(module) if not i.typing_only)]:
            if name not in chains:
                chains[name] = f"{chains[module]} > {name}"
                if name in module_files():
                    waiting.append(name)
    return chains


def assert_loads_none_of(root: str, forbidden: set[str]) -> None:
    bad = [chain for name, chain in loads(root).items() if within(name, forbidden)]
    assert not bad, "\n".join(bad)


every_module = pytest.mark.parametrize("module", module_files())


@every_module
def test_a_module_imports_only_what_its_layer_may(module: str) -> None:
    layers = [name for name in MAY_IMPORT if within(module, {name})]
    if module == "fsnl.pipeline":
        assert not imports(module)
        return
    assert layers, f"{module} has no place yet in MAY_IMPORT: which modules may it import?"
    layer = max(layers, key=len)
    allowed = MAY_IMPORT[layer] | {layer}
    bad = [i for i in imports(module) if within(i.name, {"fsnl"}) and not within(i.name, allowed)]
    assert not bad, f"{layer} may import only {sorted(allowed)}"


@every_module
def test_imports_are_absolute_and_never_by_the_bare_folder_name(module: str) -> None:
    bare = {"pipeline", "cache", "tests"}
    assert not [i for i in imports(module) if i.name.startswith(".") or within(i.name, bare)]


@pytest.mark.parametrize("module", sorted(VALUES | PICKLES))
def test_what_data_sets_may_import_of_the_cache_loads_no_library_but_numpy(module: str) -> None:
    assert_loads_none_of(module, {"h5py", "faiss", "click", "PIL", *HEAVY})


@every_module
def test_only_the_cache_package_imports_h5py(module: str) -> None:
    assert within(module, {"fsnl.cache"}) or not [i for i in imports(module) if within(i.name, {"h5py"})]


@pytest.mark.parametrize("module", [m for m in module_files() if within(m, {"fsnl.cache"})])
def test_the_cache_package_loads_no_stage_and_no_framework(module: str) -> None:
    assert_loads_none_of(module, {"fsnl.pipeline", "faiss", "click", *HEAVY})


@pytest.mark.parametrize("module", [m for m in module_files() if within(m, PURE)])
def test_pure_modules_touch_no_file_and_no_command_line_and_print_nothing(module: str) -> None:
    assert_loads_none_of(module, {"click", "h5py", "PIL", *HEAVY})
    assert not [i for i in imports(module) if within(i.name, {"pathlib", "tempfile", "random"})]
    assert not {"print", "open", "input"} & calls(module)


@every_module
def test_only_commands_print_and_only_commands_import_click(module: str) -> None:
    if not within(module, {"fsnl.pipeline.cli"}):
        assert not [i for i in imports(module) if within(i.name, {"click"})]
        assert "print" not in calls(module)


def test_faiss_has_one_door() -> None:
    doors = [m for m in module_files() if any(within(i.name, {"faiss"}) for i in imports(m))]
    assert len(doors) == 1
    assert within(doors[0], {"fsnl.pipeline.classifiers"})


@pytest.mark.parametrize("module", [m for m in module_files() if within(m, {"fsnl.pipeline.datasets"})])
def test_data_sets_need_no_torch_save_where_torchvision_downloads(module: str) -> None:
    assert_loads_none_of(module, {"torch", "timm", "faiss", "fsnl.pipeline.encoders"})
    assert not [i for i in imports(module) if within(i.name, {"torchvision"}) and not i.lazy]


@pytest.mark.parametrize("command", [m for m in module_files() if m.startswith("fsnl.pipeline.cli.")])
def test_no_command_loads_both_torch_and_faiss(command: str) -> None:
    heavy = {"faiss"} if command in EXTRACTION_COMMANDS else HEAVY
    if command == "fsnl.pipeline.cli.inspect":  # it may list the digits again, and they may have moved
        heavy = heavy - {"sklearn"}
    assert_loads_none_of(command, heavy)


def test_this_guard_sees_every_kind_of_import() -> None:
    source = """
import os, torch.nn as nn
from scipy import stats
from fsnl.cache import schema, nothing
from fsnl.cache.arrays import F32
from . import sibling
if TYPE_CHECKING:
    import typed
class A:
    def f(self):
        import lazy
        importlib.import_module("dynamic")
"""
    found = {i.name: i for i in imports_in(ast.parse(source))}
    assert set(found) == {
        *("os", "torch.nn", "scipy", "scipy.stats", "fsnl.cache.schema", "fsnl.cache", "fsnl.cache.arrays"),
        *(".", "..sibling", "typed", "lazy", "dynamic"),
    }
    assert {name for name, i in found.items() if i.lazy} == {"lazy", "dynamic"}
    assert {name for name, i in found.items() if i.typing_only} == {"typed"}
    assert loads("fsnl.cache.schema")["numpy"] == "fsnl.cache.schema > fsnl.cache.arrays > numpy"
