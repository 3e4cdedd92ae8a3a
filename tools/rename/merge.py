"""Writes the renamed files at their new places; several that go to one place become one file."""

from __future__ import annotations

import ast
import collections
import subprocess
from pathlib import Path

from rename import tables


def write(root: Path, given: tables.Tables, files: list[tuple[str, bytes, bool]]) -> None:
    texts = {place: data for place, data, _ in files}
    targets: dict[str, list[str]] = collections.defaultdict(list)
    for old, new in given.modules.items():
        targets[tables.located(new)].append(tables.located(old))
    moved = {old for olds in targets.values() for old in olds}
    for place, data, changed in files:
        if changed and place not in moved:
            (root / place).write_bytes(data)
    results: dict[str, bytes] = {}
    for new, olds in targets.items():
        if new in texts and new not in moved:
            olds.insert(0, new)  # a file that was there before
        results[new] = texts[olds[0]] if len(olds) == 1 else merged([texts[o].decode() for o in olds], olds).encode()
    staged = {}
    for number, (new, olds) in enumerate(targets.items()):  # by way of names that nothing has, for git
        first = olds[0]
        if first != new:
            temporary = f".rename-{number}.py"
            subprocess.run(["git", "mv", first, temporary], cwd=root, check=True)
            staged[temporary] = new
        for other in olds[1:]:
            if other not in results or other in olds:
                subprocess.run(["git", "rm", "-q", "-f", other], cwd=root, check=True)
    for temporary, new in staged.items():
        (root / new).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "mv", temporary, new], cwd=root, check=True)
    for new, data in results.items():
        (root / new).parent.mkdir(parents=True, exist_ok=True)
        (root / new).write_bytes(data)
    for new, text in given.new.items():
        path = root / tables.located(new)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(f'"""{text}"""\n', encoding="utf-8")
    subprocess.run(["git", "add", "-A", "server", "tests"], cwd=root, check=True)


def merged(texts: list[str], names: list[str]) -> str:
    """One file from several: the first one's docstring, all imports, then the bodies in order."""
    head = ""
    imports: list[str] = []
    checking: list[str] = []
    bodies: list[str] = []
    statements: set[str] = set()
    bound: dict[str, str] = {}
    for text, name in zip(texts, names, strict=True):
        tree = ast.parse(text)
        lines = text.splitlines(keepends=True)
        drop: set[int] = set()
        for index, node in enumerate(tree.body):
            span = range(node.lineno - 1, node.end_lineno or node.lineno)
            if index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                if not head:
                    head = "".join(lines[i] for i in span)
                drop.update(span)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                imports.append("".join(lines[i] for i in span))
                drop.update(span)
            elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not node.orelse:
                checking += [ast.get_source_segment(text, n) or "" for n in node.body]
                drop.update(span)
            elif ast.unparse(node) in statements:  # the same logger, the same type variable
                drop.update(span)
            else:
                statements.add(ast.unparse(node))
                for target in ast.walk(node) if isinstance(node, ast.Assign | ast.AnnAssign) else [node]:
                    bind = getattr(target, "name", None) or (
                        target.id if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store) else None
                    )
                    if isinstance(bind, str):
                        if bind in bound and bound[bind] != name:
                            print(f"- merge: {bind} stands in {bound[bind]} and in {name}")
                        bound[bind] = name
        bodies.append("".join(line for i, line in enumerate(lines) if i not in drop).strip("\n"))
    future = "from __future__ import annotations\n"
    others = [i for i in imports if i.strip() != future.strip()]
    parts = [head, future if len(others) != len(imports) else "", "".join(dict.fromkeys(others))]
    if checking:
        parts.append("if TYPE_CHECKING:\n" + "".join(f"    {c}\n" for c in dict.fromkeys(checking)))
    return "\n".join(p for p in parts if p) + "\n\n" + "\n\n\n".join(b for b in bodies if b) + "\n"
