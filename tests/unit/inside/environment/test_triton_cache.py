"""A cache that cannot be written to is a fault of the disk, not of a test."""

from __future__ import annotations

import errno

import pytest

from warpwave.inside.environment import is_of_the_disk, why_unwritable


def test_a_folder_that_cannot_be_made_is_named(tmp_path, monkeypatch):
    """Triton writes each kernel there before it is launched."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file" / "cache"))

    assert str(tmp_path / "file" / "cache") in why_unwritable()


def test_a_new_folder_is_made(tmp_path, monkeypatch):
    """A fresh machine has no cache yet."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "a" / "cache"))

    assert why_unwritable() == ""


@pytest.mark.parametrize(
    ("file", "number", "expected"),
    [
        ("/lib/triton/runtime/cache.py", errno.ENOSPC, True),
        ("/lib/triton/runtime/cache.py", errno.EROFS, True),
        ("/lib/triton/runtime/cache.py", errno.ENOENT, False),
        ("/package/test_own.py", errno.ENOSPC, False),
    ],
)
def test_only_the_disk_below_the_cache_is_to_blame(file, number, expected):
    """A test that fills a disk of its own fails."""
    code = compile(f"raise OSError({number}, 'why')", file, "exec")
    with pytest.raises(OSError, match="why") as caught:
        exec(code)

    assert is_of_the_disk(caught.value) is expected
