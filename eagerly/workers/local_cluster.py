"""A private Ray cluster on this machine."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from eagerly.errors import RunError
from eagerly.reaper import Reaper, descendants

_STORE = 2**28  # bytes of shared memory, used to send policies
_TOKEN = "RAY_AUTH_TOKEN"


class LocalCluster:
    """Starts and joins a Ray cluster that other users of this machine cannot access.

    Its servers listen on the loopback interface and require a random token. Its sockets and logs
    are in a folder that only this user can open and that is removed when the cluster ends.

    Args:
        ray: The `ray` package.
        num_cpus: Number of CPU cores in the cluster.

    Raises:
        RunError: If the cluster's servers listen on another interface.
    """

    def __init__(self, ray: Any, num_cpus: int) -> None:
        self._ray, before = ray, descendants()
        # A private folder, because every user can write to Ray's /tmp/ray, including its sockets.
        self._folder = Path(mkdtemp(prefix="eagerly-"))
        try:
            with _random_token(ray), _on_loopback(ray):
                ray.init(
                    address="local",  # a new cluster, even if one is running
                    include_dashboard=False,
                    num_cpus=num_cpus,
                    object_store_memory=_STORE,
                    logging_level=logging.ERROR,
                    _temp_dir=str(self._folder / "ray"),
                )
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._servers = descendants() - before
        self._reaper = Reaper()
        self._reaper.add(self._servers, self._folder)
        address = ray.get_runtime_context().gcs_address
        if not address.startswith("127.0.0.1:"):
            self.close()
            raise RunError(
                f"the servers of Ray {ray.__version__} must listen on 127.0.0.1; got {address}: "
                "install another version of Ray, or use --collectors processes"
            )

    def close(self) -> None:
        """Ends all processes of the cluster, including frozen ones."""
        for server in self._servers:  # shutdown would detach their children
            self._reaper.add(descendants(server))
        self._ray.shutdown()
        self._ray._raylet.AuthenticationTokenLoader.instance().reset_cache()
        self._reaper.close()


@contextmanager
def _random_token(ray: Any) -> Iterator[None]:
    """Sets a random authentication token, unless the user has set one.

    If none is set, Ray writes one to `~/.ray/auth_token`, which other users may be able to read.
    """
    if {_TOKEN, f"{_TOKEN}_PATH"} & os.environ.keys():
        yield
        return
    os.environ[_TOKEN] = secrets.token_hex(32)
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()
    try:
        yield
    finally:
        del os.environ[_TOKEN]  # other clusters have other tokens


@contextmanager
def _on_loopback(ray: Any) -> Iterator[None]:
    """Makes Ray listen only on loopback, as on platforms where it does not support clusters."""
    constants = ray._private.ray_constants
    before, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before
