"""Connections of clients: the port, HTTP, WebSockets, event streams and tokens. Imports go only in this direction:

    server → session → http → websocket → auth
                       address (knows none of them)

The faces are `server`, `http`, `websocket`, `auth` and `address`. This module imports none of them, so that a command that
only signs a token does not load a server.
"""
