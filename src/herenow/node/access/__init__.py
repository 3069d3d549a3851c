"""Access: who may see whom, as far as this node has asked the ledger or the application.

`relation_cache` asks and keeps facts about pairs of users, `pair_facts` judges them, `change_feed` hears what changed.
`RelationCache` is the face of this package.
"""

from herenow.node.access.change_feed import POLL
from herenow.node.access.relation_cache import WHOLE, AccessEvents, ChangeEvents, RelationCache

__all__ = ["POLL", "WHOLE", "AccessEvents", "ChangeEvents", "RelationCache"]
