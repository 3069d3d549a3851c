"""`herenow top`: the state of one or more nodes on a terminal."""

from herenow.cli.top.command import top

__all__ = ["top"]
