"""The engine on Redis or Valkey: a live store that any number of nodes share."""

from herenow.engines.redis.checks import ServerState
from herenow.engines.redis.keys import Keys, ShardKeys, slot_of
from herenow.engines.redis.redis_engine import RedisEngine

__all__ = ["Keys", "RedisEngine", "ServerState", "ShardKeys", "slot_of"]
