"""What may an operator decide, and where did each decision come from?

`Settings` (model) says which settings there are and which values fit together; `load` (layers) finds them in
flags, environment, files and defaults, and remembers the place of each; `agreed_terms` (agreement) says what all nodes on
one store must have in common. Nothing else in herenow reads the environment.
"""

from herenow.settings.agreement import agreed_terms
from herenow.settings.layers import load
from herenow.settings.model import Row, Settings, milliseconds

__all__ = ["Row", "Settings", "agreed_terms", "load", "milliseconds"]
