"""The settings of a server, and where each value came from.

`Settings` (model) defines the settings and validates combinations; `load` (layers) reads them from flags, environment,
files and defaults, with the source of each; `agreed_terms` (agreement) lists those that all nodes on one store must share.
No other package reads the environment.
"""

from herenow.settings.agreement import agreed_terms, fingerprint
from herenow.settings.layers import load
from herenow.settings.model import Row, Settings, milliseconds

__all__ = ["Row", "Settings", "agreed_terms", "fingerprint", "load", "milliseconds"]
