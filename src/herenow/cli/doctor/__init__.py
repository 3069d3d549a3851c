"""`herenow doctor`: checks configuration, stores and the running node, and says what to fix."""

from herenow.cli.doctor.doctor_command import doctor

__all__ = ["doctor"]
