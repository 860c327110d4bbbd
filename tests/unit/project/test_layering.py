"""The pure core stays pure: what decides imports nothing that does."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "kinesis_ds"

# From the ground up. A file imports from its own folder and from those before it; ``.`` holds what
# lies loose in the package and is used by all. What Spark is handed lies on top.
FLOORS = [".", "plan", "wire", "options", "observe", "aws", "agent", "reader", "writer"]
TOP = {"__init__", "datasource", "diagnostics"}
# Whoever works in these folders decides or translates: values in, values out.
PURE_FOLDERS = ["plan", "wire", "options"]
# And these files, in folders that also act.
PURE_FILES = [
    "errors",
    "limits",
    "codecs",
    "agent/efo/machine",
    "agent/machine",
    "agent/polling/answer_size",
    "agent/polling/machine",
    "agent/polling/pace",
    "agent/remote/forms",
    "agent/remote/framing",
    "agent/remote/messages",
    "agent/remote/placement",
    "agent/remote/restarts",
    "writer/aggregating",
    "writer/key_order",
    "writer/ledger_format",
    "writer/pacing",
    "writer/prediction",
    "writer/readiness",
    "writer/records",
    "writer/results",
    "writer/rows",
    "writer/scheduler",
    "writer/shard_queue",
    "writer/slices",
    "writer/waiting",
]
# The double thinks in pure files too, except for these, which listen, wait and keep time.
ACTING_IN_THE_DOUBLE = {
    f"testing/{name}"
    for name in (
        "__init__",
        "__main__",
        "certificate",
        "clock",
        "endpoint",
        "event_stream",
        "http",
        "http2",
        "journal",
        "listener",
        "replay",
        "server",
        "server_thread",
        "swallowing",
    )
}
IMPURE = {
    "pyspark",
    "asyncio",
    "threading",
    "socket",
    "botocore",
    "aiobotocore",
    "aiohttp",
    "boto3",
    "time",
}


def modules() -> list[str]:
    """Every module of the package, as its path without the ending."""
    return sorted(str(path.relative_to(PACKAGE))[:-3] for path in PACKAGE.rglob("*.py"))


def folder(module: str) -> str:
    """The room that a module lies in; ``.`` for the loose ones."""
    return module.split("/", maxsplit=1)[0] if "/" in module else "."


PURE = [
    *(m for m in modules() if folder(m) in PURE_FOLDERS),
    *(m for m in modules() if folder(m) == "testing" and m not in ACTING_IN_THE_DOUBLE),
    *PURE_FILES,
]


def imports_of(module: str) -> set[str]:
    """Names imported when the module is imported; those for type checkers only do not count."""
    tree = ast.parse((PACKAGE / f"{module}.py").read_text())
    found: set[str] = set()
    for node in running_statements(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} uses a relative import"
            found.add(node.module or "")
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def running_statements(tree: ast.AST) -> list[ast.AST]:
    found: list[ast.AST] = []
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                found += [other, *running_statements(other)]
            continue
        found += [child, *running_statements(child)]
    return found


def modules_reached(module: str) -> dict[str, str]:
    """Every foreign or impure module that importing this one leads to, and by which way."""
    reached: dict[str, str] = {}
    seen = {module}
    waiting = [(module, module)]
    while waiting:
        name, way = waiting.pop()
        for imported in imports_of(name):
            inside = imported.removeprefix("kinesis_ds.").replace(".", "/")
            if imported.startswith("kinesis_ds."):
                if inside not in seen and (PACKAGE / f"{inside}.py").is_file():
                    seen.add(inside)
                    waiting.append((inside, f"{way} -> {inside}"))
            else:
                reached.setdefault(imported.split(".")[0], way)
    return reached


def test_the_pure_files_exist() -> None:
    """A module that was renamed must not slip out of this test."""
    assert [m for m in PURE_FILES if m not in modules()] == []


def test_every_folder_has_its_floor() -> None:
    """A new room is put in its place when it is built."""
    assert {folder(m) for m in modules()} == {*FLOORS, "testing"}


@pytest.mark.parametrize("module", [m for m in modules() if folder(m) in FLOORS])
def test_imports_go_down(module: str) -> None:
    """No folder imports from one above it, for type checkers neither; so there is no circle."""
    if module in TOP:
        return
    here = FLOORS.index(folder(module))
    tree = ast.parse((PACKAGE / f"{module}.py").read_text())
    imported = {
        node.module.removeprefix("kinesis_ds.").replace(".", "/")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kinesis_ds.")
    }
    firsts = {name.split("/")[0] for name in imported}
    rooms = {first if (PACKAGE / first).is_dir() else "." for first in firsts}

    assert {room for room in rooms if FLOORS.index(room) > here} == set()
    assert folder(module) != "writer" or "reader" not in rooms


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_reaches_no_io(module: str) -> None:
    """Neither directly nor through another module of ours."""
    reached = modules_reached(module)

    assert {name: way for name, way in reached.items() if name in IMPURE} == {}


def test_only_compat_tells_pyspark_versions_apart() -> None:
    """Every difference between PySpark versions is in one file."""
    asking = [
        str(path.relative_to(PACKAGE))
        for path in sorted(PACKAGE.rglob("*.py"))
        if "pyspark.__version__" in path.read_text() or "pyspark.version" in path.read_text()
    ]

    assert asking in ([], ["_compat.py"])


def test_importing_the_package_imports_neither_pyspark_nor_aws() -> None:
    """``import kinesis_ds`` is cheap, and its errors can be caught without Spark."""
    program = (
        "import sys; import kinesis_ds; kinesis_ds.DataLossError;"
        "print(*sorted({m.split('.')[0] for m in sys.modules} & "
        "{'pyspark', 'pyarrow', 'botocore', 'aiobotocore', 'aiohttp', 'asyncio', 'boto3'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=PACKAGE.parent,
    )

    assert done.stdout.strip() == ""


def test_the_connector_does_not_import_its_double() -> None:
    """What runs in production does not load what breaks things on purpose."""
    importing = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if "testing" not in path.parts and "kinesis_ds.testing" in path.read_text()
    }
    assert importing == set()
