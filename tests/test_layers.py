"""Imports run strictly downward, and importing a module does nothing but define."""

import ast
import graphlib
import importlib.util
import pathlib

import pytest

from app.__main__ import COMMANDS

ROOT = pathlib.Path(__file__).parents[1]

# Lowest first. A unit (a module or a package directly under app/, or a module that is named here)
# may import only units of the layers before its own; modules inside one package may import each
# other, without a cycle.
LAYERS = (
    {"errors"},
    {"types"},
    {"settings"},
    {"system"},
    {"text", "tables"},
    {"input", "optimizers", "losses"},
    {"models", "checkpoints"},
    {"training", "evaluation", "exporting", "keras"},
    {"distributed", "profiling"},
    {"assembly"},
    {"tasks"},
    {"training.run"},  # the story of a run, told with everything below
    {"cli"},
    {"trained"},
    {"words", "texts", "items", "language"},
    {""},  # the package itself, which gives the names of those
    {"sklearn"},
    {"__main__", *COMMANDS},
)
DEPTH = {unit: depth for depth, layer in enumerate(LAYERS) for unit in layer}
FLAG_READERS = {"cli"} | LAYERS[-1]
GUARDS = "__name__ == '__main__'", "TYPE_CHECKING"
# What a constant may be made of: neither allocates a tensor nor starts TensorFlow's runtime.
DESCRIPTIONS = {"tf.TensorSpec", "tf.RaggedTensorSpec", "tf.function"}


def modules_in(root: pathlib.Path) -> dict[str, ast.Module]:
    """Dotted name -> syntax tree of every module of the package folder `app` under root."""
    return {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): ast.parse(
            path.read_text(encoding="utf-8"), str(path)
        )
        for path in sorted((root / "app").rglob("*.py"))
    }


def names_imported(tree: ast.Module, package: str) -> set[str]:
    """Return every dotted name that a module imports, at any depth: `from a import b` gives `a.b`.

    package: the one that the module is in, from which its relative imports count.
    """
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            names.update(f"{module}.{alias.name}" for alias in node.names)
    return names


def package_of(name: str, modules: dict[str, ast.Module]) -> str:
    """Return the package that a module is in; a package is in itself."""
    is_package = any(other.startswith(f"{name}.") for other in modules)
    return name if is_package else name.rpartition(".")[0]


def imports_between(modules: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Module -> the modules of app that it imports."""
    return {
        name: {
            other if other in modules else other.rpartition(".")[0]
            for other in names_imported(tree, package_of(name, modules))
            if other.startswith("app.") and other != "app.__name__"
        }
        for name, tree in modules.items()
    }


def upward_imports(graph: dict[str, set[str]]) -> list[str]:
    """Imports that the table forbids, as readable lines."""
    found = []
    for name, targets in graph.items():
        for target in targets:
            unit, other = unit_of(name), unit_of(target)
            if unit != other and DEPTH[other] >= DEPTH[unit]:
                found.append(f"{name} imports {target}")
    return sorted(found)


def unit_of(module: str) -> str:
    inside = module.partition(".")[2]
    return inside if inside in DEPTH else inside.split(".")[0]


def acts_at_import(tree: ast.Module) -> list[int]:
    """Line numbers of the module's top-level statements that do more than define."""
    passive = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [
        node.lineno
        for node in tree.body
        if not isinstance(node, passive)
        and not (isinstance(node, ast.If) and ast.unparse(node.test) in GUARDS)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        and not (isinstance(node, (ast.Assign, ast.AnnAssign)) and not runs_tensorflow(node))
    ]


def runs_tensorflow(node: ast.stmt) -> bool:
    """A constant made by `tf.constant()` and its like starts TensorFlow's runtime at import."""
    called = {ast.unparse(child.func) for child in ast.walk(node) if isinstance(child, ast.Call)}
    return any(name.startswith("tf.") for name in called - DESCRIPTIONS)


@pytest.fixture(scope="module")
def modules():
    found = modules_in(ROOT)
    found.pop("app", None)
    return found


def test_every_module_has_a_layer(modules):
    strangers = {unit_of(name) for name in modules} - DEPTH.keys()
    assert not strangers, f"give them a layer in LAYERS: {sorted(strangers)}"


def test_imports_run_strictly_downward(modules):
    assert upward_imports(imports_between(modules)) == []


def test_no_import_cycles(modules):
    order = tuple(graphlib.TopologicalSorter(imports_between(modules)).static_order())
    assert set(order) >= modules.keys()  # a cycle would have raised


def test_layers_of_keras_need_no_extra(modules):
    """Nothing that is imported with them, at the top of a module, is an optional package."""
    tops = {
        name: ast.Module([n for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))], [])
        for name, tree in modules.items()
    }
    graph, found = imports_between(tops), set()
    left = {name for name in modules if name.startswith("app.keras")}
    while left:
        found |= left
        left = {other for name in left for other in graph.get(name, ())} - found
    trees = {name: tops[name] for name in found & modules.keys()}
    names = {
        n for one, tree in trees.items() for n in names_imported(tree, package_of(one, modules))
    }
    packages = {name.partition(".")[0] for name in names}
    assert {"keras", "tensorflow"} <= packages
    assert not packages & {"tqdm", "tensorflow_text", "tensorboard", "tensorboard_plugin_profile"}


def test_only_the_top_layers_know_flags(modules):
    knowing = {
        name
        for name, tree in modules.items()
        if "absl.flags" in names_imported(tree, package_of(name, modules))
    }
    assert {unit_of(name) for name in knowing} <= FLAG_READERS


def test_importing_a_module_only_defines(modules):
    assert {name: lines for name, tree in modules.items() if (lines := acts_at_import(tree))} == {}


def test_imports_are_relative(modules):
    """The folder is also installed as a package of another name, `lexrow`."""
    assert len(modules) > 200
    for name, tree in modules.items():
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert "app" not in {imported.split(".")[0] for imported in names}, name


def test_the_check_sees_a_wrong_import(tmp_path):
    sources = {
        "settings.py": "import json\n",
        "text/corpus.py": "",
        "models/cbow.py": "from .. import settings\nfrom ..tables.base import Table\n",
        "tables/base.py": "from . import host\n",
        "tables/host.py": "from . import base\n"
        "def late():\n    from ..text import corpus\n    import app.models.cbow\n",
    }
    for name, source in sources.items():
        (tmp_path / "app" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "app" / name).write_text(source)
    graph = imports_between(modules_in(tmp_path))
    assert upward_imports(graph) == [
        "app.tables.host imports app.models.cbow",
        "app.tables.host imports app.text.corpus",
    ]
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(graph).prepare()


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('"""Doc."""\nimport re\nWORD = re.compile("a")\n', []),
        ("print(1)\n", [1]),
        ("import os\nos.environ['A'] = tf.constant(1)\n", [2]),
        ("ROW = tf.TensorSpec([], tf.string)\n", []),
        ("if __name__ == '__main__':\n    main()\n", []),
        ("for i in range(3):\n    pass\n", [1]),
        ("flags.DEFINE_string('a', '', 'A.')\n", [1]),
    ],
)
def test_the_check_sees_work_at_import(source, lines):
    assert acts_at_import(ast.parse(source)) == lines
