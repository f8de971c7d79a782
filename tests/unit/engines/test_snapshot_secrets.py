"""What of a package never leaves for another machine."""

from __future__ import annotations

import pytest

from warpwave.engines.snapshot import _walk
from warpwave.run.inputs import _files


@pytest.mark.parametrize("name", [".env.local", ".npmrc", "id_rsa", "server.pem", "credentials.json"])
def test_files_of_passwords_stay_here(tmp_path, name):
    """An example of a settings file goes along."""
    for each in (name, ".env.example", "test_one.py"):
        (tmp_path / each).write_text("")

    assert [path.name for path in _walk(tmp_path, tmp_path / "out")] == [".env.example", "test_one.py"]


def test_a_link_out_is_not_followed(tmp_path):
    """Nothing behind it is read or named."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "private.txt").write_text("pin")
    package = tmp_path / "package"
    package.mkdir()
    (package / "data").symlink_to(tmp_path / "outside")

    found = dict(_files(package, tmp_path / "out", package))

    assert list(found) == ["data"]
    assert found["data"].startswith("a link out of the package")
