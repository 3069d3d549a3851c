"""Figures of the language in docstrings and comments, and random samples for readers.

.venv/bin/python -m tests.prose             prints the figures of src/, each with its target
.venv/bin/python -m tests.prose 40 SEED     prints 40 random function docstrings and 40 random test names
"""

from __future__ import annotations

import ast
import io
import random
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
TESTS = Path(__file__).parent

WHO = re.compile(r"\b(who|whom|whose|whoever)\b", re.IGNORECASE)
BODY = re.compile(r"\b(some|no|every|any)body\b", re.IGNORECASE)
FREE = re.compile(r"^(Who|What|Whom|Whose|Whoever|Whatever|Somebody|Nobody|Everybody|Anybody)\b")
SENTENCE = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`])")


def prose_of(path: Path) -> Iterator[str]:
    """Every docstring, string that stands alone, and comment of a file."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not re.match(r"# (noqa|type:)", token.string):
            yield token.string.lstrip("# ")


def figures(folder: Path) -> dict[str, tuple[float, float]]:
    """Name → measured value and target."""
    parts = [part for path in sorted(folder.rglob("*.py")) for part in prose_of(path)]
    words = sum(len(part.split()) for part in parts) / 1000
    sentences = [sentence.strip() for part in parts for sentence in SENTENCE.split(part) if sentence.strip()]
    free = sum(bool(FREE.match(sentence)) for sentence in sentences)
    return {
        "who, whom, whose, whoever per 1 000 words": (sum(len(WHO.findall(part)) for part in parts) / words, 2.0),
        "some-, no-, every-, anybody per 1 000 words": (sum(len(BODY.findall(part)) for part in parts) / words, 1.5),
        "% of sentences that begin with Who, What, Somebody …": (100 * free / len(sentences), 1.0),
    }


def docstrings(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(node)):
                arguments = ", ".join(each.arg for each in (*node.args.args, *node.args.kwonlyargs))
                yield f"{path.relative_to(folder)} {node.name}({arguments})\n    {text}"


def names_of_tests(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield node.name


def main(arguments: list[str]) -> None:
    if not arguments:
        for name, (value, target) in figures(SOURCE).items():
            print(f"{name:<56} {value:5.2f}  target {target:g}")
        return
    count, seed = int(arguments[0]), arguments[1]
    chance = random.Random(seed)
    names = [*names_of_tests(TESTS), *names_of_tests(SOURCE)]
    print("\n\n".join(chance.sample(list(docstrings(SOURCE)), count)))
    print("\n" + "\n".join(chance.sample(names, count)))


if __name__ == "__main__":
    main(sys.argv[1:])
