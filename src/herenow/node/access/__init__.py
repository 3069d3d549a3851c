"""Access: which users may see which. The face of this package is `RelationCache`, which queries and caches facts about pairs
of users; `pair_facts` judges them, `change_feed` reads what changed.
"""

from herenow.node.access.change_feed import POLL
from herenow.node.access.relation_cache import WHOLE, AccessEvents, ChangeEvents, RelationCache

__all__ = ["POLL", "WHOLE", "AccessEvents", "ChangeEvents", "RelationCache"]
