"""Write the list of all texts at the end of `docs/reference/errors.md` from the code: `make docs`.

The texts are read from the syntax tree: those of errors where they are made, of contradictions
between options, and of log lines at WARNING and above. What is filled in at run time is shown as …
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from kinesis_ds import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "errors.md"

_HEAD = "## Every text\n"
_INTRODUCTION = """
<!-- From here on written by `make docs` from the code. Change the texts there. -->

What is filled in at run time is shown as …; after the dash stands what to do. Where nearly all of
a text is filled in, it names the call and its answer, as in `DescribeStreamSummary for stream
orders answered AccessDeniedException`.
"""
_CLASSES = {
    name: found
    for name, found in vars(errors).items()
    if isinstance(found, type) and issubclass(found, errors.KinesisConnectorError)
}
_LEVELS = frozenset({"warning", "error", "_warn_once"})
# Texts in which everything is filled in.
_ALL_FILLED = re.compile(r"[\W_]*")


def section() -> str:
    """Return the text of the section."""
    raised: dict[str, set[str]] = defaultdict(set)
    options, logged = set(), set()
    for path in sorted((ROOT / "kinesis_ds").rglob("*.py")):
        if "testing" in path.parts:
            continue
        tree = _FilledIn().visit(ast.parse(path.read_text()))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name, texts = _name(node.func), [_text(one) for one in node.args]
                if name in _CLASSES:
                    raised[_CLASSES[name].condition].add(" — ".join(texts[:2]))
                elif name in _LEVELS:
                    logged.add(max(texts, key=len, default=""))
        if path.name in ("rules.py", "given.py"):
            options |= set(_problems(tree))
    parts = [_HEAD + _INTRODUCTION]
    parts += [_list(f"`{condition}`", raised[condition]) for condition in sorted(raised)]
    parts.append(_list("Problems of options, within `KINESIS_OPTIONS`", options))
    parts.append(_list("Warnings in the log", logged))
    return "\n".join(filter(None, parts))


def page(text: str) -> str:
    """Return the page with a new list in place of the old one."""
    return text.partition(_HEAD)[0] + section()


class _FilledIn(ast.NodeTransformer):
    """Puts the text that a function has given to a local name in place of that name."""

    def __init__(self) -> None:
        self._texts: dict[str, ast.expr] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        before, self._texts = self._texts, {}
        self.generic_visit(node)
        self._texts = before
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Name) and isinstance(
            value, (ast.Constant, ast.JoinedStr, ast.BinOp)
        ):
            self._texts.setdefault(target.id, value)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        read = isinstance(node.ctx, ast.Load)
        return self._texts.get(node.id, node) if read else node


def _problems(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Yield) and node.value is not None:
            yield _text(node.value)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "self.problems.append":
            yield _text(node.args[0])


def _list(title: str, texts: set[str]) -> str:
    lines = sorted(f"* {text}" for text in texts if not _ALL_FILLED.fullmatch(text))
    return "\n".join([f"### {title}\n", *lines, ""]) if lines else ""


def _name(function: ast.expr) -> str:
    return ast.unparse(function).rpartition(".")[2]


def _text(node: ast.expr) -> str:
    """Return the fixed parts of an expression that makes a text."""
    if isinstance(node, ast.Constant):
        text = node.value if isinstance(node.value, str) else "…"
        text = re.sub(r"%[-+0-9.]*[sdrfg]", "…", text)
    elif isinstance(node, ast.FormattedValue):
        inside = node.value
        text = _text(inside) if isinstance(inside, (ast.JoinedStr, ast.BinOp)) else "…"
    elif isinstance(node, ast.JoinedStr):
        text = "".join(_text(one) for one in node.values)
    elif isinstance(node, ast.BinOp):
        text = _text(node.left) + _text(node.right)
    elif isinstance(node, ast.IfExp):
        text = " / ".join(filter(None, (_text(node.body), _text(node.orelse))))
    else:
        text = "…"
    return re.sub(r"\s+", " ", re.sub("…+", "…", text)).replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
