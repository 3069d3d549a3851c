"""The tests run the code blocks of the guides: fenced blocks, read from the pages by name.

A block has its name in a comment on the line above it, which is invisible on the rendered page:

    <!-- snippet: serve -->
    ```sh
    herenow serve
    ```

A test declares its blocks with `@runs(page, name, …)` and gets them as `snippets["serve"]`. It fails if it does not read
one of them, and `test_every_block.py` fails if a block is run by no test. So a changed page changes what is run.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MARK = re.compile(r"<!-- snippet: (\S+) -->")
FENCE = re.compile(r"( *)```(\w*)")

covered: set[tuple[str, str]] = set()
"""(page, block) of every test that was imported."""


class Block(str):
    """The text of a block, without the fence and its indentation."""

    __slots__ = ("language", "line", "name", "page")
    page: str
    name: str | None
    line: int
    language: str


def blocks(page: str) -> list[Block]:
    found: list[Block] = []
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        fence = FENCE.match(lines[number])
        number += 1
        if not fence:
            continue
        begin, indent = number, len(fence[1])
        while lines[number].strip() != "```":
            number += 1
        block = Block("".join(f"{line[indent:]}\n" for line in lines[begin:number]))
        mark = MARK.fullmatch(lines[begin - 2].strip()) if begin > 1 else None
        block.page, block.line, block.language = page, begin, fence[2]
        block.name = mark[1] if mark else None
        found.append(block)
        number += 1
    return found


class Snippets(Mapping[str, Block]):
    """The blocks of one page that a test runs; records which were read."""

    def __init__(self, page: str, names: tuple[str, ...]) -> None:
        self._blocks = {block.name: block for block in blocks(page) if block.name in names}
        self._names = names
        self._unread = set(names)

    def __getitem__(self, name: str) -> Block:
        self._unread.discard(name)
        return self._blocks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def all_read(self) -> None:
        assert not self._unread, f"named by @runs, but not run: {sorted(self._unread)}"


def runs(page: str, *names: str) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., Awaitable[None]]]:
    """The test gets `snippets`; without names, all blocks of the page."""
    chosen = names or tuple(block.name for block in blocks(page) if block.name)
    covered.update((page, name) for name in chosen)

    def decorated(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        @wraps(test)
        async def run(**fixtures: Any) -> None:
            snippets = Snippets(page, chosen)
            await test(snippets=snippets, **fixtures)
            snippets.all_read()

        signature = inspect.signature(test)
        rest = [each for each in signature.parameters.values() if each.name != "snippets"]
        run.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return run

    return decorated
