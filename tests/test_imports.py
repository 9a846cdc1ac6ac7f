"""Imports run down the layers, never up or in a circle; importing the package stays light."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import esnlm

PACKAGE = Path(esnlm.__file__).parent
ROOT = Path(__file__).resolve().parents[1]

#: Subpackages by layer, from the top. One may import the layers below its own.
LAYERS = (
    ("__main__",),
    ("commands",),
    ("studies", "search", "reporting", "app"),
    ("options",),
    ("loading", "runs", "plots", "evaluation", "interop", "torch"),
    ("models", "training", "datasets"),
    ("text", "reservoir", "features", "grammars", "readouts"),
    ("kernels", "utils", "storage", "ngrams"),
)
LEVEL = {
    subpackage: level for level, subpackages in enumerate(LAYERS) for subpackage in subpackages
}
#: Imports between subpackages of one layer.
SIDEWAYS = {
    ("reporting", "studies"),
    ("search", "studies"),
    ("loading", "torch"),
    ("training", "models"),
    ("features", "reservoir"),
    ("ngrams", "utils"),
    ("storage", "utils"),
}
#: Folders of `esnlm.readouts`, from the top.
READOUT_LAYERS = (
    ("sklearn",),
    ("class_based",),
    ("token_gated", "mixture"),
    ("softmax", "linear"),
    ("base",),
)
READOUT_LEVEL = {
    subpackage: level
    for level, subpackages in enumerate(READOUT_LAYERS)
    for subpackage in subpackages
}

#: What only a few subpackages may import, and these.
RESERVED = {
    "torch": {"torch", "interop", "studies", "options"},
    "transformers": {"torch", "interop"},
    "lm_eval": {"interop"},
    "dask": {"runs"},
    "distributed": {"runs"},
    "jinja2": {"reporting"},
    "matplotlib": {"plots", "studies", "search", "reporting"},
    "optuna": {"search"},
    "fastapi": {"app"},
    "uvicorn": {"app"},
}


def modules() -> list[Path]:
    """Every module but the package's face, and the code that exported models carry with them."""
    apart = (PACKAGE / "__init__.py", *(PACKAGE / "interop" / "exported").iterdir())
    return sorted(path for path in PACKAGE.rglob("*.py") if path not in apart)


def name_of(path: Path) -> str:
    """``esnlm/text/corpus.py`` -> ``esnlm.text.corpus``."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path) for path in modules()}


def imported(path: Path) -> Iterator[str]:
    """Names of the modules that a module imports, at once or later, but not for types alone."""
    tree = ast.parse(path.read_text())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in NAMES else node.module or ""


def subpackages() -> dict[str, set[str]]:
    """Rooms of the package, and those that each imports."""
    graph: dict[str, set[str]] = {}
    for path in modules():
        here = name_of(path).split(".")[1]
        found = graph.setdefault(here, set())
        found |= {n.split(".")[1] for n in imported(path) if n.startswith("esnlm.")} - {here}
    return graph


def test_every_subpackage_has_a_layer_and_they_are_few():
    assert set(subpackages()) == set(LEVEL)
    assert len(LAYERS) <= 8
    assert len(LEVEL) <= 25
    folders = {p.name for p in (PACKAGE / "readouts").iterdir() if p.is_dir()} - {"__pycache__"}
    assert folders == set(READOUT_LEVEL)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_down_the_layers(path: Path):
    here = name_of(path).split(".")[1]
    for name in imported(path):
        if name.split(".")[0] != "esnlm":
            allowed = RESERVED.get(name.split(".")[0])
            assert allowed is None or here in allowed, f"{here} imports {name}"
            continue
        if name == "esnlm":
            assert here in ("options", "studies", "runs"), f"{here} imports the public names"
            continue
        subpackage = name.split(".")[1]
        down = (
            LEVEL[here] < LEVEL[subpackage] or here == subpackage or (here, subpackage) in SIDEWAYS
        )
        assert down, f"{here} imports {name}, which does not stand below it"


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "readouts").rglob("*/*.py")), ids=lambda path: path.parent.name
)
def test_imports_run_down_the_readouts(path: Path):
    here = path.parent.name
    for name in imported(path):
        if name.startswith("esnlm.readouts."):
            subpackage = name.split(".")[2]
            down = READOUT_LEVEL[here] < READOUT_LEVEL[subpackage] or here == subpackage
            assert down, f"{here} imports {name}, which does not stand below it"


def test_no_command_imports_another():
    studies = {path.parent for path in (PACKAGE / "studies").rglob("*command.py")}
    assert len(studies) > 5
    for path in modules():
        for name in imported(path):
            if name.startswith("esnlm.commands."):
                pytest.fail(f"{name_of(path)} imports {name}")
            if name.startswith("esnlm.studies.") and name.endswith("command"):
                assert path.parent.name == name.split(".")[2], f"{name_of(path)} imports {name}"


def test_there_is_no_circle():
    between_subpackages = {
        subpackage: found & set(LEVEL) for subpackage, found in subpackages().items()
    }
    between_modules = {
        name_of(path): {name for name in imported(path) if name in NAMES} - {name_of(path)}
        for path in modules()
    }
    for graph in (between_subpackages, between_modules):
        order = list(TopologicalSorter(graph).static_order())  # raises CycleError
        assert set(graph) <= set(order)
    assert "esnlm.kernels.recurrence" in between_modules["esnlm.reservoir.recurrence"]


def test_kernels_import_numpy_and_numba_alone():
    allowed = {"numpy", "numba", "llvmlite", "platformdirs", "esnlm", *sys.stdlib_module_names}
    for path in (PACKAGE / "kernels").glob("*.py"):
        assert {name.split(".")[0] for name in imported(path)} <= allowed, path


def loaded_after(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}


def test_import_esnlm_is_light():
    heavy = {
        "torch",
        "matplotlib",
        "numba",
        "optuna",
        "pandas",
        "reservoirpy",
        "sklearn",
        "transformers",
    }
    assert not loaded_after("import esnlm") & heavy


def test_the_model_needs_neither_torch_nor_plots():
    code = "from esnlm import LanguageModel, Reservoir, RidgeReadout, SoftmaxReadout"
    assert not loaded_after(code) & {"torch", "matplotlib", "transformers"}


@pytest.mark.parametrize(
    "command", ["", "train", "search", "prepare", "generate", "evaluate", "serve", "natural"]
)
def test_help_loads_little(command: str):
    code = f"from esnlm.__main__ import main\nmain({[*command.split(), '--help']})"
    heavy = {"fastapi", "matplotlib", "numba", "optuna", "pandas", "scipy", "sklearn", "torch"}
    if command in ("", "train", "search", "prepare", "generate", "evaluate", "serve"):
        heavy.add("numpy")
    assert not loaded_after(code) & heavy


#: Files of tests that hold for the package as a whole, and what they test.
WHOLE = {
    "architecture": "ARCHITECTURE.md",
    "cli": "the command line, from outside",
    "fuzz": "readers of files from strangers",
    "imports": "arrows between modules",
    "interrupts": "Ctrl-C in every command",
    "no_dead_options": "every option of train changes something",
    "no_dead_parameters": "every parameter of an estimator changes something",
    "packaging": "what is released: version, metadata, recipe for conda",
    "portability": "other systems and processors",
    "readme": "README.md",
    "signatures": "names and types of the public functions",
    "site": "the documentation",
}


def test_tests_are_in_files_of_the_names_of_what_they_test() -> None:
    """The name begins with that of a module, room, study, command or benchmark."""
    names = {part for path in modules() for part in path.relative_to(PACKAGE).with_suffix("").parts}
    names |= {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    names |= {name.removesuffix("s") for name in names}
    starts = tuple(f"test_{name}" for name in names | WHOLE.keys())
    files = {path.stem for path in (ROOT / "tests").glob("test_*.py")}
    assert {f for f in files if not any(f == s or f.startswith(f"{s}_") for s in starts)} == set()
