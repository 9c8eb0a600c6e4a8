"""Sends a bounded number of requests over so many connections and reads what another process's CPU did meanwhile."""

import asyncio
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Return user and system seconds of one process, its threads included."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@dataclass(frozen=True)
class Measured:
    """CPU and wall milliseconds a request, and the median latency in milliseconds."""

    cpu_ms: float
    wall_ms: float
    p50_ms: float


async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> None:
    """Send one request on an open connection and read its whole answer; RuntimeError unless it is 200."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    head += b"authorization: Bearer sk-bench\r\n"
    writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    if not answer.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"{answer[:300]!r} {await reader.read(500)!r}")
    lower = answer.lower()
    if b"transfer-encoding: chunked" in lower:
        while True:
            size = int(await reader.readline(), 16)
            await reader.readexactly(size + 2)
            if size == 0:
                return
    start = lower.index(b"content-length:") + 15
    await reader.readexactly(int(lower[start:].split(b"\r\n", 1)[0]))


async def load(port: int, pid: int, body: Callable[[int], bytes], requests: int, connections: int, first: int = 0) -> Measured:
    """Send `requests` requests over `connections` connections; each gets a number of its own, from `first` on."""
    numbers = iter(range(first, first + requests))
    took: list[float] = []

    async def worker() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
        for number in numbers:
            sent = body(number)
            began = time.perf_counter()
            await one(reader, writer, sent)
            took.append(time.perf_counter() - began)
        writer.close()

    cpu, wall = cpu_s(pid), time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(connections)))
    wall_ms = (time.perf_counter() - wall) * 1e3 / requests
    await asyncio.sleep(0.3)  # what is written behind the answer counts too
    return Measured((cpu_s(pid) - cpu) * 1e3 / requests, wall_ms, statistics.median(took) * 1e3)
