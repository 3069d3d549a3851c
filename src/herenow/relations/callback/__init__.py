"""Relations read from the application over HTTP. The package's public name is `CallbackRelations`.

source ─▶ kit.batcher       combines queries made at the same time
       ─▶ questions         request and response bodies, and their validation
       ─▶ signed_client     one HTTP request, under limits; signed by `signature`
            ─▶ kit.circuit_breaker   pauses while the application does not answer
            ─▶ source_health         metrics and log lines about failures
"""

from herenow.relations.callback.failures import Failed
from herenow.relations.callback.source import CallbackRelations

__all__ = ["CallbackRelations", "Failed"]
