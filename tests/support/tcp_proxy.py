"""A TCP proxy that tests stop, continue and kill: tcp_proxy.py TARGET_PORT [PORT]. Prints the port on which it
listens."""
import selectors
import socket
import sys

selector = selectors.DefaultSelector()
listener = socket.create_server(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0))
selector.register(listener, selectors.EVENT_READ)
print(listener.getsockname()[1], flush=True)
while True:
    for key, _ in selector.select():
        if key.fileobj is listener:
            here, _address = listener.accept()
            try:
                there = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
            except OSError:
                here.close()
                continue
            selector.register(here, selectors.EVENT_READ, there)
            selector.register(there, selectors.EVENT_READ, here)
            continue
        try:
            data = key.fileobj.recv(1 << 16)
            key.data.sendall(data)
        except OSError:
            data = b""
        if not data:
            for side in (key.fileobj, key.data):
                selector.unregister(side)
                side.close()
            break  # the remaining events may be of the other side
