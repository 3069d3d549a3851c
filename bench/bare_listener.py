"""The best possible picows server: a bare listener without uvicorn, checks or presence, to compare our WebSocket server
with.

python -m bench.bare_listener discard|fan-out [--port 8001]: drops every frame, or sends it to every connected socket.
The read buffer and the transports (uvloop's) are those of our server.
"""

import argparse

import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_create_server

connected: set[WSTransport] = set()


class Discard(WSListener):
    def on_ws_connected(self, transport: WSTransport) -> None:
        connected.add(transport)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None: ...
    def on_ws_disconnected(self, transport: WSTransport) -> None:
        connected.discard(transport)


class FanOut(Discard):
    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        payload = frame.get_payload_as_bytes()
        for other in connected:
            other.send(WSMsgType.TEXT, payload)


async def main(mode: str, port: int) -> None:
    make = {"discard": Discard, "fan-out": FanOut}[mode]
    server = await ws_create_server(
        lambda _: make(), "127.0.0.1", port, read_buffer_init_size=2048, use_aiofastnet=False
    )
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=("discard", "fan-out"))
    parser.add_argument("--port", type=int, default=8001)
    uvloop.run(main(**vars(parser.parse_args())))
