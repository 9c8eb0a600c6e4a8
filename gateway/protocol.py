"""uvicorn's HTTP protocol with our answers to what is no HTTP: in JSON, with bounds on a request's head in bytes and seconds."""

import asyncio
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.api.errors import HeadTooLarge, envelope
from gateway.errors import GatewayError, InvalidRequest, RequestTimeout

HEAD_BYTES = 65_536  # of request line and headers together; usual servers take 8 to 64 KiB
HEAD_S = 30.0


class Protocol(HttpToolsProtocol):
    """One connection. A head must be whole within its bounds: the parser alone would wait and store without end."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn narrows it
        super().connection_made(transport)
        self._head_bytes: int | None = 0  # None: no head is being read
        self._used = False  # whether any head came whole
        self._head_timer: asyncio.TimerHandle | None = self.loop.call_later(HEAD_S, self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head_bytes is not None and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse(HeadTooLarge(f"the request's head is longer than {HEAD_BYTES} bytes"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self._late)

    def on_headers_complete(self) -> None:
        self._head_bytes = None
        self._stop_timer()
        super().on_headers_complete()
        self._used = True

    def send_400_response(self, msg: str) -> None:
        self._refuse(InvalidRequest("this is no valid HTTP/1.1 request: one length or chunks, legal names and values"))

    def _late(self) -> None:
        self._head_timer = None
        if self._head_bytes == 0 and not self._used:
            self.transport.close()  # a connection that was opened and never used: nobody waits for words
            return
        self._refuse(RequestTimeout("the request's head did not come in time"))

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, error: GatewayError) -> None:
        """Answer and close; only close where an answer is on its way, which other bytes must not get into."""
        self._stop_timer()
        if self._used and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.close()
            return
        dialect = "messages" if b"/messages" in getattr(self, "url", b"") else "chat"
        status, body, headers = envelope(error, dialect=dialect)
        lines = [b"HTTP/1.1 %d %s" % (status, HTTPStatus(status).phrase.encode())]
        lines += [name + b": " + value for name, value in headers]
        lines += [b"content-length: %d" % len(body), b"connection: close", b"", body]
        self.transport.write(b"\r\n".join(lines))
        self.transport.close()
