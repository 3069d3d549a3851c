"""Compare the code of two commits without its docstrings and comments.

    .venv/bin/python -m tests.same_code BASE [HEAD] [-- PATH ...]

HEAD is the working tree unless given. Prints every Python file whose code differs, and exits with 1 if there is one. A
commit that only rewrites prose must print nothing.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path


def code_of(source: str) -> str:
    """The syntax tree as text, without docstrings, stand-alone strings and positions. Comments are not part of a tree."""
    return ast.dump(_WithoutProse().visit(ast.parse(source)))


class _WithoutProse(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        stands_alone = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if stands_alone else node


def differing(base: str, head: str | None, paths: list[str]) -> list[str]:
    """Python files whose code differs, including files that exist on one side only."""
    named = _git("diff", "--name-only", "--no-renames", base, *([head] if head else []), "--", *paths).split()
    return [path for path in named if path.endswith(".py") and _differs(path, base, head)]


def _differs(path: str, base: str, head: str | None) -> bool:
    try:
        before = _git("show", f"{base}:{path}")
        after = _git("show", f"{head}:{path}") if head else Path(path).read_text()
    except (subprocess.CalledProcessError, FileNotFoundError):
        return True
    return code_of(before) != code_of(after)


def _git(*command: str) -> str:
    return subprocess.run(["git", *command], check=True, capture_output=True, text=True).stdout


def main(arguments: list[str]) -> int:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    commits, paths = arguments[:at], arguments[at + 1 :]
    found = differing(commits[0], commits[1] if len(commits) > 1 else None, paths)
    for path in found:
        print(path)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
