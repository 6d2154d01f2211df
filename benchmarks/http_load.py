"""A bounded HTTP client for benchmarks: a fixed number of requests over a few keep-alive connections on loopback.

    python benchmarks/http_load.py PORT BODIES.json --requests 1000 --connections 4

Prints one JSON line: seconds, and the latency of every request in milliseconds. Runs as a process of its own.
"""

import argparse
import asyncio
import json
import time
from pathlib import Path


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> tuple[int, bytes]:
    writer.write(request)
    await writer.drain()
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").lower().split("\r\n")
    length = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length:"))
    return int(lines[0].split()[1]), await reader.readexactly(length)


def post(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def load(port: int, bodies: list[bytes], num_requests: int, num_connections: int) -> tuple[float, list[float]]:
    requests = [post("/predict", body) for body in bodies]
    milliseconds: list[float] = []

    async def connection(first: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for at in range(first, num_requests, num_connections):
            start = time.perf_counter()
            status, _ = await ask(reader, writer, requests[at % len(requests)])
            milliseconds.append(1000 * (time.perf_counter() - start))
            if status != 200:
                raise SystemExit(f"status {status}")
        writer.close()

    start = time.perf_counter()
    await asyncio.gather(*(connection(first) for first in range(num_connections)))
    return time.perf_counter() - start, milliseconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("bodies", type=Path)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--connections", type=int, default=4)
    arguments = parser.parse_args()
    bodies = [json.dumps(body).encode() for body in json.loads(arguments.bodies.read_text())]
    seconds, milliseconds = asyncio.run(load(arguments.port, bodies, arguments.requests, arguments.connections))
    print(json.dumps({"seconds": seconds, "milliseconds": milliseconds}))


if __name__ == "__main__":
    main()
