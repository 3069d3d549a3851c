"""The audit line: one line of the log for each act of a service token with the scope `admin`."""

from __future__ import annotations

import structlog
from starlette.responses import Response

from herenow.api.description.operations import Operation
from herenow.api.http.request import Call
from herenow.api.request_shapes import ID_SCHEMA
from herenow.errors import ProtocolError

log = structlog.get_logger(__name__)


async def audit(call: Call, operation: Operation) -> Response:
    """Handle the request, and write its audit line: the token's subject, the endpoint, and the ids in path and query.

    A request that is refused writes none. `outcome` is `failed` if a store did not answer or the server failed: the act
    may have taken effect."""
    try:
        response = await operation.handle(call)
    except ProtocolError:
        raise
    except BaseException:
        _write(call, operation, "failed")
        raise
    _write(call, operation, "done")
    return response


def _write(call: Call, operation: Operation, outcome: str) -> None:
    ids = {name: call.path_text(name) for name in operation.path_names}
    for parameter in operation.query:
        if parameter.schema is ID_SCHEMA and (given := call.parameter(parameter.name)) is not None:
            ids[parameter.name] = given
    log.info("audit", by=call.caller.user, act=f"{operation.method} {operation.path}", outcome=outcome, **ids)
