"""Find the socket of an engine on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from harness.config.hosts import Host
from harness.errors import InfrastructureError

_ROOTS = "/run/podman/podman.sock"


def socket_of(host: Host | None) -> str:
    """Return the address of the engine that hosts.yml names for this machine; empty for Docker's usual one.

    Raises:
        InfrastructureError: Podman is asked for, and no socket of it is there.
    """
    if host is None or not (host.socket or host.engine == "podman"):
        return ""
    if host.socket:
        return f"unix://{host.socket}"
    if os.environ.get("DOCKER_HOST", "").endswith("/podman.sock"):
        return os.environ["DOCKER_HOST"]
    own = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}") / "podman" / "podman.sock"
    path = Path(_ROOTS) if os.getuid() == 0 else own
    if not path.is_socket():
        start = "sudo systemctl start podman.socket" if os.getuid() == 0 else "systemctl --user start podman.socket"
        raise InfrastructureError(
            f"There is no socket of Podman at {path}.",
            "Podman has no daemon: its service listens only after it was started.",
            f"`{start}`, or without systemd: `podman system service --time 0 unix://{path} &`.",
        )
    return f"unix://{path}"
