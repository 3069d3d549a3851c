"""How clients reach a node: WebSockets, event streams, tokens, and the port they come in by.

Imports inside this package go only in this direction:

    server → session → http → websocket → auth
                       address (knows none of them)

The faces are `server` (the WebSocket server), `http`, `websocket`, `auth` and `address`; this module imports none of them,
so that a command that only signs a token does not load a server.
"""
