"""The pure core stays pure: what decides imports nothing that does."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "kinesis_ds"

# Modules that decide. They may import each other, and nothing that waits, sends or starts.
PURE = [
    "position",
    "offsets",
    "shards",
    "planning",
    "batch_planning",
    "packing",
    "option_positions",
    "option_rules",
    "option_table",
    "option_times",
    "option_typed",
    "option_values",
    "options",
    "limits",
    "errors",
    "agent/subscription",
    "agent/frames",
    "agent/polling",
    "codecs",
    "agent/columns",
    "agent/control",
    "agent/kpl",
    "agent/placing",
    "agent/settings",
    "kpl",
    "testing/account",
    "testing/changing",
    "testing/consumers",
    "testing/errors",
    "testing/fields",
    "testing/frames",
    "testing/hashing",
    "testing/listing",
    "testing/log",
    "testing/names",
    "testing/operations",
    "testing/paging",
    "testing/positions",
    "testing/rates",
    "testing/reading",
    "testing/registering",
    "testing/resharding",
    "testing/sequence",
    "testing/settings",
    "testing/shard",
    "testing/stream",
    "testing/streams",
    "testing/subscribing",
    "testing/subscription",
    "testing/tagging",
    "testing/tokens",
    "testing/validation",
    "testing/writing",
    "writer/aggregating",
    "writer/filing",
    "writer/lanes",
    "writer/ledger_format",
    "writer/pacing",
    "writer/prediction",
    "writer/queues",
    "writer/records",
    "writer/results",
    "writer/rows",
]
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


def test_the_pure_modules_exist() -> None:
    """A module that was renamed must not slip out of this test."""
    assert [m for m in PURE if not (PACKAGE / f"{m}.py").is_file()] == []


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
