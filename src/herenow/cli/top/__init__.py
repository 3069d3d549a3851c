"""`herenow top`: shows the state of one or several nodes, on a terminal or as lines of JSON."""

from herenow.cli.top.top_command import top

__all__ = ["top"]
