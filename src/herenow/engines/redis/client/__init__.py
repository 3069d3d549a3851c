"""A small Redis client on hiredis for one server, Sentinel or Cluster. README.md in this folder describes it."""

from herenow.engines.redis.client.cluster_map import Cluster
from herenow.engines.redis.client.commands import Commands, Pipeline, Request
from herenow.engines.redis.client.redis_connection import (
    DEADLINE,
    Address,
    Argument,
    Command,
    Login,
    Lost,
    RedisConnection,
    Refused,
    Reply,
    connect,
    packed,
    refusal,
)
from herenow.engines.redis.client.redis_server import Server
from herenow.engines.redis.client.redis_url import RedisTarget, Topology, parse_url, without_password
from herenow.engines.redis.client.script import Script
from herenow.engines.redis.client.servers import Servers, servers_of

__all__ = [
    "DEADLINE",
    "Address",
    "Argument",
    "Cluster",
    "Command",
    "Commands",
    "Login",
    "Lost",
    "Pipeline",
    "RedisConnection",
    "RedisTarget",
    "Refused",
    "Reply",
    "Request",
    "Script",
    "Server",
    "Servers",
    "Topology",
    "connect",
    "packed",
    "parse_url",
    "refusal",
    "servers_of",
    "without_password",
]
