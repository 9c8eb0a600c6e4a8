"""A real redis-server on a free port of this machine, which a test may stop, freeze, and start again."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class RedisServer:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        program = shutil.which("redis-server")
        assert program is not None, "redis-server is needed"
        self._process = subprocess.Popen(
            [program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "",
             "--appendonly", "yes", *options],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + 10
        while b"PONG" not in self.says("PING") and b"NOAUTH" not in self.says("PING"):
            assert time.monotonic() < deadline, "redis-server did not start"
            time.sleep(0.02)

    def says(self, *command: str) -> bytes:
        """Return the raw answer to one command, b"" when there is no connection."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as sent:
                sent.sendall(f"*{len(command)}\r\n".encode() + b"".join(f"${len(each)}\r\n{each}\r\n".encode() for each in command))
                return sent.recv(65_536)
        except OSError:
            return b""

    def freeze(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.thaw()
            self._process.terminate()
            self._process.wait(10)
            self._process = None
