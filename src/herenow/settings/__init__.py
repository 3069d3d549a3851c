"""What may an operator decide, and where did each decision come from?

`Settings` (model) says which settings there are and which values fit together; `load` (layers) finds them in
flags, environment, files and defaults, and remembers the place of each. Nothing else in herenow reads the
environment.
"""

from herenow.settings.layers import load
from herenow.settings.model import Row, Settings

__all__ = ["Row", "Settings", "load"]
