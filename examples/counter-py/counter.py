import json, signal, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Counter(BaseHTTPRequestHandler):
    def answer(self, document):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def do_GET(self):
        self.answer("ok")

    def do_POST(self):
        call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        state, args = call["object"]["state"], call["args"] or {}
        state["value"] += {"increment": args.get("by", 1), "reset": -state["value"], "get": 0}[call["method"]]
        self.answer({"object": {"state": state}, "result": state["value"]})

signal.signal(signal.SIGTERM, lambda *_: sys.exit())
ThreadingHTTPServer(("", 8080), Counter).serve_forever()
