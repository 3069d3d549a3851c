"""A frame as a server-sent event: its type is the event's name, its bytes are the data.

JSON has no raw line breaks, so one `data:` line is enough. Events have no `id:`, because there is nothing to resume: a
client that reconnects gets a snapshot.
"""

from __future__ import annotations

STILL_HERE = b":\n\n"
"""A comment: ignored by clients, keeps proxies from closing the connection."""

_TYPE_AT = len(b'{"type":"')


def event(frame: bytes) -> bytes:
    name = frame[_TYPE_AT : frame.index(b'"', _TYPE_AT)]
    return b"event: %b\ndata: %b\n\n" % (name, frame)


def retry(milliseconds: int) -> bytes:
    """Encode the event-stream line that tells a client how long to wait before it reconnects."""
    return b"retry: %d\n\n" % milliseconds
