"""`herenow doctor`: checks of the configuration, the stores and the running node, each with what to do."""

from herenow.cli.doctor.command import doctor

__all__ = ["doctor"]
