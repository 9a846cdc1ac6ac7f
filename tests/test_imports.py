"""The house's direction: imports run down it, never up; importing it stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "esnlm"

#: Floors from the top. A module may import its own floor and those below.
FLOORS = (
    ("__main__",),
    ("cli",),
    ("commands",),
    ("experiments",),
    (
        "blimp", "interop", "torch", "models", "evaluation", "shakespeare", "datasets", "sources",
        "archives", "training", "ablation",
    ),
    ("interpolation",),
    ("language_model", "ngram_model"),
    ("sequence_model",),
    (
        "generation", "framing", "persistence", "checkpoints", "training_log", "state_blocks",
        "preparation", "appending", "workplace", "model_files",
    ),
    (
        "reservoir", "readouts", "corpus", "chunks", "tokenizers", "grammars", "shards",
        "dyck_grammar",
        "sentences", "vocabularies",
    ),
    (
        "features", "spectral", "weights", "statistics", "metrics", "ngrams", "threads", "streams",
        "drive", "harvest", "recurrence", "pushdown", "elman_rules", "validation", "ngram_tables",
        "tensors", "frequency_bins", "files", "token_code", "timescales", "last_tokens",
    ),
    ("kernels", "blas"),
)  # fmt: skip
LEVEL = {name: level for level, names in enumerate(FLOORS) for name in names}

#: Calls upwards that are made when a method runs, by name of the importing module.
#: ``Reservoir.from_reservoirpy`` hands over to the interop module that knows reservoirpy.
ON_DEMAND = {("reservoir", "interop")}


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def part_of(path: Path) -> str:
    """The module or sub-package directly under esnlm."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_parts(tree: ast.AST) -> set[tuple[str, bool]]:
    """Parts of esnlm that a module imports, and whether that happens inside a function."""
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    found = set()
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "esnlm" and len(parts) > 1:
                found.add((parts[1], id(node) in inside))
    return found


def public_homes() -> dict[str, str]:
    """Public names -> the module they live in."""
    import esnlm

    return {name: home.split(".")[1] for name, home in esnlm._HOME.items()}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_down_the_house(path: Path):
    here = part_of(path)
    assert here in LEVEL, f"{here} has no floor: give it one in FLOORS"
    homes = public_homes() | {"__version__": "kernels"}
    for target, on_demand in imported_parts(ast.parse(path.read_text())):
        part = homes.get(target, target)
        if on_demand and (here, part) in ON_DEMAND:
            continue
        assert part in LEVEL, f"{part} has no floor: give it one in FLOORS"
        assert LEVEL[here] <= LEVEL[part], f"{here} imports {part}, which stands above it"


@pytest.mark.parametrize("part", ["kernels"])
def test_kernels_import_numpy_and_numba_alone(part: str):
    allowed = {"numpy", "numba", "llvmlite", "esnlm", *sys.stdlib_module_names}
    for path in (PACKAGE / part).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert {name.split(".")[0] for name in names} <= allowed, path


def loaded_after(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return {name.split(".")[0] for name in done.stdout.split()}


def test_import_esnlm_is_light():
    heavy = {"torch", "matplotlib", "numba", "pandas", "reservoirpy", "sklearn", "transformers"}
    assert not loaded_after("import esnlm") & heavy


def test_the_model_needs_neither_torch_nor_plots():
    code = "from esnlm import LanguageModel, Reservoir, RidgeReadout, SoftmaxReadout"
    assert not loaded_after(code) & {"torch", "matplotlib", "transformers"}


def test_help_loads_no_numbers():
    code = "import sys\nfrom esnlm.cli import _parser\n_parser([]).format_help()"
    assert not loaded_after(code) & {"numpy", "numba", "sklearn", "torch"}


def test_the_names_that_the_readme_tells_are_public():
    import esnlm

    table = (PACKAGE.parent / "README.md").read_text().partition("| name | what |")[2]
    first = [line.split("|")[1] for line in table.partition("\n\n")[0].splitlines()[2:]]
    told = {name.strip(" `") for cell in first for name in cell.split(",")}
    assert told == set(esnlm.__all__)
    assert all(hasattr(esnlm, name) for name in told)
