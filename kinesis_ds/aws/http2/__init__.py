"""Requests over HTTP/2, on `awscrt`: many answers at once on few TLS connections.

A pool (:mod:`.pool`) holds connections (:mod:`.connection`), and each of them holds streams
(:mod:`.stream`): one request and its answer. The connector (:mod:`.connector`) makes connections.

Each answer has a flow-control window of its own, which is its reader's credit: the server is
granted as many bytes as the reader takes. A reader that stops receives no more than one window,
while the other streams of the connection go on. The connection's own window never limits.

`awscrt` calls back on a thread of its own. A callback puts down what it was given and wakes the
event loop (:mod:`.wakeup`); all decisions are made on the loop, so there is no lock.

`awscrt` cannot reset a stream. A stream that its reader leaves before its end is *left open*: it is
granted nothing more, and what still arrives is dropped. When no stream of a connection is read any
more, the connection is closed, and that ends the streams left open on it.

`awscrt` is an optional dependency; it is imported when the first connection is made.
"""
