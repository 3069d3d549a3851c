"""`herenow doctor`: checks configuration, stores and the running node, and prints what to fix."""

from herenow.cli.doctor.doctor_command import doctor

__all__ = ["doctor"]
