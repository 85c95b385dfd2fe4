"""Imports point one way, as docs/architecture.md draws it.

A room is a top-level module or a sub-package of scalemix. The page holds a block that opens with
the line "```text arrows": room names with spaces between, " -> " from each level to the next,
wrapped at will. A module may import from its own room and from rooms on earlier levels. Every
import counts, also those inside functions and under TYPE_CHECKING.
"""

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


def levels_of(page: str) -> list[list[str]]:
    """Room names, level by level, out of the text of the architecture page."""
    blocks = re.findall(r"(?ms)^```text arrows *\n(.*?)^``` *$", page)
    if len(blocks) != 1:
        raise ValueError(f"Found {len(blocks)} blocks of arrows, expected 1.")
    return [level.split() for level in blocks[0].split("->")]


def modules_of(root: Path) -> dict[str, Path]:
    """Dotted names below the package's root, and their files; "" is the root itself."""
    names = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        names[".".join(part for part in parts if part != "__init__")] = path
    return names


def imported_names(path: Path, package: str, module: str) -> Iterator[str]:
    """Absolute dotted names that a file asks for, anywhere in it, of the package or not."""
    here = [package, *module.split(".")] if module else [package]
    if path.name != "__init__.py":
        here = here[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom():
                base = here[: len(here) - node.level + 1] if node.level else []
                base = base + (node.module.split(".") if node.module else [])
                yield from (".".join([*base, alias.name]) for alias in node.names)
            case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]):
                if ast.unparse(function).split(".")[-1] in ("import_module", "__import__"):
                    yield name


def imports_of(root: Path) -> dict[str, set[str]]:
    """For each module of the package, the package's modules that it imports."""
    modules = modules_of(root)
    graph: dict[str, set[str]] = {module: set() for module in modules}
    for module, path in modules.items():
        for name in imported_names(path, root.name, module):
            first, _, target = name.partition(".")
            if first == root.name:
                # `from scalemix.linalg import solve` names linalg.solve: cut down to a module.
                while target and target not in modules:
                    target = target.rpartition(".")[0]
                graph[module].add(target)
    return graph


def violations(root: Path, levels: list[list[str]]) -> list[str]:
    """What contradicts the arrows in the package at `root`, one sentence each."""
    graph = imports_of(root)
    listed = [room for level in levels for room in level]
    rank = {room: number for number, level in enumerate(levels) for room in level}
    rooms = {module.split(".")[0] for module in graph if module}
    found = [f"Room {room} stands in the block twice." for room in rank if listed.count(room) > 1]
    found += [f"Room {room} is not in the block: add it." for room in sorted(rooms - set(rank))]
    found += [f"Room {room} of the block does not exist." for room in sorted(set(rank) - rooms)]
    for module, targets in graph.items():
        own = module.split(".")[0]
        for target in sorted(targets):
            room = target.split(".")[0]
            if not target:
                found.append(f"{module or 'The root'} imports the package root.")
            elif own in rank and room in rank and own != room and rank[room] >= rank[own]:
                found.append(f"{module} imports {target}: no arrow leads from {room} to {own}.")
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        found.append("Imports go in a circle: " + " <- ".join(error.args[1]) + ".")
    return found


def test_imports_of_scalemix_follow_the_arrows():
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert violations(REPOSITORY / "src" / "scalemix", levels_of(page)) == []


# The checker itself: a small house without fault, and one fault planted in it at a time.

PAGE = """# House

```text
this -> block is another
```

```text arrows
ground cellar -> first
  -> roof
```
"""

HOUSE = {
    "__init__.py": "from house.roof import tiles\n",
    "ground.py": "import math\n",
    "cellar/__init__.py": "from house.cellar._wine import bottle\n",
    "cellar/_wine.py": "bottle = 1\n",
    "first.py": "from house import ground\nfrom .cellar._wine import bottle\n",
    "roof/__init__.py": "from ._tiles import tiles\n",
    "roof/_tiles.py": "import house.first\n\nfrom ..cellar import bottle\n\ntiles = bottle\n",
}


def build(folder: Path, changes: dict[str, str | None]) -> Path:
    """Write the house with some files changed, added, or (None) left out."""
    root = folder / "house"
    for name, text in (HOUSE | changes).items():
        if text is not None:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
    return root


def test_block_is_read_over_wrapped_lines():
    assert levels_of(PAGE) == [["ground", "cellar"], ["first"], ["roof"]]


@pytest.mark.parametrize("page", ["# House\n", PAGE + PAGE], ids=["none", "two"])
def test_block_stands_exactly_once(page):
    with pytest.raises(ValueError, match=r"Found \d blocks of arrows, expected 1"):
        levels_of(page)


def test_house_without_fault_has_no_violation(tmp_path):
    assert violations(build(tmp_path, {}), levels_of(PAGE)) == []


UPWARDS = "ground imports first: no arrow leads from first to ground."


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ground.py": "import house.first\n"}, UPWARDS),
        ({"ground.py": "from house.first import f\n"}, UPWARDS),
        ({"ground.py": "from house import first\n"}, UPWARDS),
        ({"ground.py": "from . import first\n"}, UPWARDS),
        ({"ground.py": "def f():\n    from .first import g\n"}, UPWARDS),
        ({"ground.py": "if TYPE_CHECKING:\n    from house.first import F\n"}, UPWARDS),
        ({"ground.py": "m = importlib.import_module('house.first')\n"}, UPWARDS),
        (
            {"cellar/_wine.py": "from ..roof._tiles import tiles\n"},
            "cellar._wine imports roof._tiles: no arrow leads from roof to cellar.",
        ),
        (
            {"cellar/__init__.py": "from .. import ground\n"},
            "cellar imports ground: no arrow leads from ground to cellar.",
        ),
        ({"first.py": "import house\n"}, "first imports the package root."),
        ({"roof/_tiles.py": "from .. import tiles\n"}, "roof._tiles imports the package root."),
        ({"_attic.py": ""}, "Room _attic is not in the block: add it."),
        ({"_attic/_box.py": ""}, "Room _attic is not in the block: add it."),
        ({"ground.py": None, "first.py": ""}, "Room ground of the block does not exist."),
        (
            {"cellar/_wine.py": "from house.cellar import bottle\n"},
            "Imports go in a circle: cellar <- cellar._wine <- cellar.",
        ),
    ],
)
def test_planted_fault_is_reported(tmp_path, changes, expected):
    assert expected in violations(build(tmp_path, changes), levels_of(PAGE))


def test_room_listed_twice_is_reported(tmp_path):
    levels = [*levels_of(PAGE), ["ground"]]
    assert "Room ground stands in the block twice." in violations(build(tmp_path, {}), levels)
