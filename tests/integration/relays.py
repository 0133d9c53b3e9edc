"""What may stand between the program and a model's server: a TLS front and a proxy, and certificates
made for them by `openssl`."""

import select
import socket
import ssl
import subprocess
import threading


class Authority:
    """A certificate authority of a test, in a directory: `ca` is its certificate's path."""

    def __init__(self, directory, name="Test Authority"):
        directory.mkdir()
        self.directory = directory
        self.ca, self._key = directory / "ca.pem", directory / "ca.key"
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                      "-keyout", self._key, "-out", self.ca, "-subj", f"/CN={name}", "-days", "2")

    def _openssl(self, *args):
        done = subprocess.run(["openssl", *map(str, args)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def issue(self, *names):
        """(certificate, key) of a server with these names, such as "DNS:model.test"."""
        stem = self.directory / "server"
        cert, key, request, more = (stem.with_suffix(s) for s in (".pem", ".key", ".csr", ".ext"))
        more.write_text(f"subjectAltName={','.join(names)}\n")
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                      "-keyout", key, "-out", request, "-subj", "/CN=server")
        self._openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self._key,
                      "-CAcreateserial", "-out", cert, "-days", "2", "-extfile", more)
        return cert, key


def _pass_on(a, b):
    """Bytes both ways until one side ends."""
    other = {a: b, b: a}
    while True:
        # What a TLS socket has decrypted already does not wake select.
        ready = [s for s in other if isinstance(s, ssl.SSLSocket) and s.pending()]
        for s in ready or select.select([a, b], [], [], 60)[0] or [None]:
            data = s.recv(65536) if s else b""
            if not data:
                return
            other[s].sendall(data)


class Relay:
    """Listens on 127.0.0.1 and serves each connection on a thread; a context manager."""

    def __enter__(self):
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._run, args=(client,), daemon=True).start()

    def _run(self, client):
        with client:
            try:
                self.serve(client)
            except OSError:
                pass


class TlsFront(Relay):
    """TLS in front of a port of this machine. `handshakes` counts the good ones."""

    def __init__(self, port, cert, key):
        self._behind = port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(cert, key)
        self.handshakes = 0

    def serve(self, client):
        with self._context.wrap_socket(client, server_side=True) as secure, \
                socket.create_connection(("127.0.0.1", self._behind)) as behind:
            self.handshakes += 1
            _pass_on(secure, behind)


class ConnectProxy(Relay):
    """A proxy that takes CONNECT for any name and leads to 127.0.0.1. `heads` are the heads of all
    requests; with `refuse` (a status line's end) it lets nobody through."""

    def __init__(self, refuse=None):
        self._refuse = refuse
        self.heads = []

    def serve(self, client):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            more = client.recv(1)
            if not more:
                return
            head += more
        self.heads.append(head.decode("latin-1"))
        method, target, _ = self.heads[-1].split(" ", 2)
        if self._refuse or method != "CONNECT":
            client.sendall(f"HTTP/1.1 {self._refuse or '405 No'}\r\nContent-Length: 0\r\n\r\n".encode())
            return
        with socket.create_connection(("127.0.0.1", int(target.rpartition(":")[2]))) as behind:
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            _pass_on(client, behind)
