"""A Ray cluster of several nodes on this machine, for tests that kill nodes."""

from __future__ import annotations

import os
import random
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

import click
import psutil

_STARTING = 120.0  # seconds allowed for the start of a node
_CORES = 4  # declared by each node; each collector takes one
_LOST = {"period_ms": "1000", "failure_threshold": "3", "initial_delay_ms": "1000"}


class RayCluster:
    """A head node without collectors, and worker nodes that run them.

    Leaving the context kills all processes of the cluster. Joining it requires a random token.

    Args:
        folder: Folder for the logs of the nodes.
        nodes: Number of worker nodes.

    Attributes:
        address: HOST:PORT of the head.
        environment: Environment variables that a process needs to join the cluster.

    Raises:
        click.ClickException: If a node does not start.
    """

    def __init__(self, folder: Path, nodes: int = 2) -> None:
        self._folder, self._nodes = folder, list[subprocess.Popen[bytes]]()
        self.address = f"127.0.0.1:{_free_port()}"
        self.environment = os.environ | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            # A node counts as lost after three seconds without an answer.
            **{f"RAY_health_check_{name}": value for name, value in _LOST.items()},
        }
        port = self.address.rpartition(":")[2]
        try:
            self._start("head", "--head", f"--port={port}", "--node-ip-address=127.0.0.1", cores=0)
            for _ in range(nodes):
                self.add_node()
        except BaseException:
            self.close()
            raise

    def add_node(self) -> None:
        """Starts another worker node."""
        self._start("node", f"--address={self.address}", cores=_CORES)

    def _start(self, name: str, *words: str, cores: int) -> None:
        log = self._folder / f"{name}-{len(self._nodes)}.log"
        program = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *words]
        program += [f"--num-cpus={cores}", f"--object-store-memory={2**27}"]
        if name == "head":
            program.append("--include-dashboard=false")
        with log.open("wb") as file:
            node = subprocess.Popen(
                program,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._nodes.append(node)
        deadline = time.monotonic() + _STARTING
        while b"Ray runtime started" not in log.read_bytes():
            if node.poll() is not None or time.monotonic() > deadline:
                raise click.ClickException(f"a Ray node did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.05)

    def kill_node(self, draw: random.Random) -> None:
        """Kills a worker node, if possible one that runs collectors, and starts a replacement."""
        busy = [node for node in self._nodes if collectors_of(node.pid)]
        node = draw.choice(busy or self._nodes[1:])
        self._nodes.remove(node)
        _kill(node)
        self.add_node()

    def collectors(self) -> list[psutil.Process]:
        """Returns the collector processes of all nodes."""
        return [each for node in self._nodes for each in collectors_of(node.pid)]

    def close(self) -> None:
        """Kills all nodes and their processes."""
        for node in self._nodes:
            _kill(node)

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def collectors_of(pid: int) -> list[psutil.Process]:
    """Returns the collector processes among the descendants of a process."""
    return [each for each in _descendants(pid) if _is_collector(each)]


def _is_collector(process: psutil.Process) -> bool:
    try:
        words = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return words.startswith("ray::Collector") or "multiprocessing.spawn" in words


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return found


def _kill(node: subprocess.Popen[bytes]) -> None:
    for process in [*_descendants(node.pid), psutil.Process(node.pid)]:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    node.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
