"""How does a frame look as a server-sent event? Its type is the event's name, its bytes are the data.

JSON has no raw line breaks, so that one `data:` line is enough. No event has an `id:`: presence is state, there is
nothing to go on from, and a client that comes back gets a snapshot. The format of the HTML standard is the reason to
change this module.
"""

from __future__ import annotations

STILL_HERE = b":\n\n"
"""A comment: nothing to a client, a sign of life to every proxy on the way."""

_TYPE_AT = len(b'{"type":"')


def event(frame: bytes) -> bytes:
    name = frame[_TYPE_AT : frame.index(b'"', _TYPE_AT)]
    return b"event: %b\ndata: %b\n\n" % (name, frame)


def retry(milliseconds: int) -> bytes:
    """How long a client that has lost its stream waits before it comes back."""
    return b"retry: %d\n\n" % milliseconds
