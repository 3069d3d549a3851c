"""A worker that starts fast, uses only the standard library, and behaves as the file `behaviour` in its folder says.

python -S fake_worker.py FOLDER DESCRIPTOR
"""

import base64
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

folder, link = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
behaviour = (folder / "behaviour").read_text()


def send(**message):
    link.sendall(json.dumps(message).encode() + b"\n")


def note(word):
    with (folder / "notes").open("a") as notes:
        notes.write(f"{word}\n")


def end(*_):
    note(f"end {os.getpid()}")
    os._exit(0)


def hear(message):
    match message["type"]:
        case "place":
            note(f"place {message['number']} {message['of']} {message['host']} {message['port']}")
        case "dead":
            note(f"dead {' '.join(message['epochs'])}")
            send(type="buried", epochs=message["epochs"])
        case "leave":
            note(f"leave {os.getpid()}")
            end()
        case "reload":
            note(f"reload {os.getpid()}")
        case "question" if behaviour != "mute":
            send(type="report", number=message["number"], body=base64.b64encode(str(os.getpid()).encode()).decode())
        case "answer":
            told = [(each["worker"], each["restarts"], decoded(each["body"])) for each in message["told"]]
            note(f"answer {json.dumps(told)}")


def decoded(body):
    return None if body is None else base64.b64decode(body).decode()


signal.signal(signal.SIGTERM, signal.SIG_IGN if behaviour == "stubborn" else end)
note(f"start {os.getpid()}")
if behaviour.startswith("exit "):
    os._exit(int(behaviour.split()[1]))
if behaviour == "crash":
    os.kill(os.getpid(), signal.SIGKILL)
send(type="epoch", epoch=f"epoch-{os.getpid()}")
send(type="something of a newer version")
if behaviour != "slow":
    send(type="ready")
unread = b""
while True:
    if select.select([link], [], [], 0.1)[0]:
        try:
            data = link.recv(65536)
        except ConnectionResetError:  # killed before it had read everything
            data = b""
        if not data:
            note(f"alone {os.getpid()}")
            end()
        *lines, unread = (unread + data).split(b"\n")
        for line in lines:
            hear(json.loads(line))
    if (folder / f"ask-{os.getpid()}").exists():
        (folder / f"ask-{os.getpid()}").unlink()
        send(type="question", number=7)
    with suppress(BrokenPipeError):  # the supervisor notices it
        send(type="alive")
    time.sleep(0)
