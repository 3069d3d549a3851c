"""An application that answers herenow's relations callback, in one file and with the standard library only.

    export SHARED_SECRET=$(openssl rand -base64 32)
    python examples/relations_app.py graph.json 9000

    HERENOW_RELATIONS=http://127.0.0.1:9000/herenow HERENOW_RELATIONS_SECRET=$SHARED_SECRET herenow serve

The relations are in a file that is read for every request; a real application would query its database:

    {"follows": [["ana", "bob"], ["bob", "ana"]],
     "contacts": [["ana", "cy", null], ["bob", "cy", 1790000000000]],
     "rooms": {"lobby": ["ana", "bob"]}}

When relations change, call `tell`. docs/relations-callback.md describes every field.
"""

import hashlib
import hmac
import json
import os
import sys
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WINDOW = 60
"""Seconds that a request's timestamp may differ from our clock; this prevents the replay of recorded requests."""

LARGEST = 1 << 20
"""Maximum size of a request in bytes."""


# --- Verify the signature ---


def is_genuine(secret, headers, body):
    timestamp = headers.get("Herenow-Timestamp", "")
    if not (timestamp.isascii() and timestamp.isdigit() and abs(time.time() - int(timestamp)) <= WINDOW):
        return False
    wanted = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(headers.get("Herenow-Signature", "").encode(), f"v1={wanted}".encode())


# --- Answer the request ---


def answer(graph, question):
    """Unknown ids have no relations; they are not an error."""
    match question["ask"]:
        case "between":
            return {"pairs": [between(graph, a, b) for a, b in question["pairs"]]}
        case "contacts":
            return {"lists": [{"user": user, "contacts": contacts(graph, user)} for user in question["users"]]}
        case "members":
            return {"members": [member(graph, row["room"], row["user"]) for row in question["members"]]}
        case _:
            raise ValueError("herenow asks something newer than this application knows")


def between(graph, a, b):
    mutual = [a, b] in graph["follows"] and [b, a] in graph["follows"]
    untils = [until for x, y, until in graph["contacts"] if {x, y} == {a, b}]
    fact = {"a": a, "b": b, "mutual_follow": mutual, "contact": bool(untils)}
    if untils:
        fact["contact_until"] = untils[0]
    return fact


def contacts(graph, user):
    mutual = {b for a, b in graph["follows"] if a == user and [b, a] in graph["follows"]}
    talking = {y if x == user else x for x, y, _ in graph["contacts"] if user in (x, y)}
    return sorted(mutual | talking)


def member(graph, room, user):
    return {"room": room, "user": user, "member": user in graph["rooms"].get(room, [])}


# --- Report changes ---


def tell(herenow, service_token, **changed):
    """tell(url, token, pairs=[["ana", "bob"]], users=["cy"], members=[["lobby", "ana"]], rooms=["lobby"])

    Report changed relations to herenow. Call it after the transaction is committed, and retry if it fails: repeating it is
    harmless."""
    request = urllib.request.Request(
        f"{herenow}/api/v1/relations/changed",
        data=json.dumps(changed).encode(),
        headers={"Authorization": f"Bearer {service_token}", "Content-Type": "application/json"},
        method="POST",
    )
    with urllib.request.urlopen(request, timeout=5):
        pass


# --- HTTP ---


class Relations(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    graph: Path
    secret: str

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length) if 0 < length <= LARGEST else b""
        if not is_genuine(self.secret, self.headers, body):
            self.reply(403, {"error": "not signed with our secret, or too long ago"})
            return
        self.reply(200, answer(json.loads(self.graph.read_text(encoding="utf-8")), json.loads(body)))

    def reply(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main(graph, port):
    Relations.graph, Relations.secret = Path(graph), os.environ["SHARED_SECRET"]
    with ThreadingHTTPServer(("127.0.0.1", int(port)), Relations) as server:
        print(f"http://127.0.0.1:{server.server_port}/herenow", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
