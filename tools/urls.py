"""The project's addresses in the metadata of a build: those of the repository that it is built in. Nothing is guessed without one."""

import os
import re
import subprocess
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class CustomMetadataHook(MetadataHookInterface):
    """Called by hatchling."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the URLs, unless a source distribution already has them."""
        if "urls" not in metadata:
            address = _address(self.root)
            pages = {"Repository": "", "Documentation": "/tree/main/docs", "Changelog": "/blob/main/CHANGELOG.md", "Issues": "/issues"}
            metadata["urls"] = {name: f"{address}{path}" for name, path in pages.items()} if address else {}


def _address(root: str) -> str:
    """Return `https://HOST/OWNER/NAME`: what a workflow says, or else git's remote; empty if there is none."""
    server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    if server and name:
        return f"{server}/{name}"
    done = subprocess.run(["git", "-C", root, "remote", "get-url", "origin"], capture_output=True, text=True, check=False)
    found = re.fullmatch(r"(?:https://(?:[^@/]*@)?|(?:ssh://)?git@)([\w.-]+)[:/]([\w./-]+?)(?:\.git)?/?", done.stdout.strip())
    return f"https://{found[1]}/{found[2]}" if found else ""
