"""Relations that the application itself tells, over HTTP. The package's public name is `CallbackRelations`.

source ─▶ kit.batcher       questions that come at the same time go together
       ─▶ questions         the bytes of a question, and what counts as an answer
       ─▶ signed_client     one request, under limits; signed by `signature`
            ─▶ kit.circuit_breaker   an application that does not answer is left alone
            ─▶ source_health         metrics and log lines about failures
"""

from herenow.relations.callback.failures import Failed
from herenow.relations.callback.source import CallbackRelations

__all__ = ["CallbackRelations", "Failed"]
