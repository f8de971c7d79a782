"""Links from a kernel to its source, at the commit of the run. All data is synthetic."""

from __future__ import annotations

import dataclasses
import subprocess

import pytest
from synthetic import compiled, record, run, sample

from warpwave.compare import compare
from warpwave.render.commands import source_link
from warpwave.render.html import render_html
from warpwave.starter import public_address, repository_of

REPOSITORY = "https://code.example/me/ops#kernels"


@pytest.mark.parametrize(
    ("repository", "commit", "source", "link"),
    [
        (REPOSITORY, "0123abcd4567", "softmax/rows.py:30", "https://code.example/me/ops/blob/0123abcd4567/kernels/softmax/rows.py#L30"),
        ("https://code.example/me/ops#", "0123abcd4567", "a b.py:1", "https://code.example/me/ops/blob/0123abcd4567/a%20b.py#L1"),
        (REPOSITORY, "0123abcd4567+", "softmax/rows.py:30", ""),  # the lines may be others
        (REPOSITORY, "", "softmax/rows.py:30", ""),
        ("", "0123abcd4567", "softmax/rows.py:30", ""),
        ("javascript:alert(1)#x", "0123abcd4567", "softmax/rows.py:30", ""),
        ("https://me:secret@code.example/me/ops#", "0123abcd4567", "softmax/rows.py:30", ""),
        ('https://code.example/me/ops"x#', "0123abcd4567", "softmax/rows.py:30", ""),
        (REPOSITORY, "0123abcd4567", "../../x.py:30", ""),
        (REPOSITORY, "0123abcd4567", "softmax/rows.py", ""),
    ],
)
def test_only_an_exact_place_has_an_address(repository, commit, source, link):
    """And only a plain https address is a link: it comes from a raw folder."""
    target = compare([run(record=record(repository=repository, commit=commit))]).targets[0]

    assert source_link(target, source) == link


def test_the_page_links_the_kernel():
    """Beside its function."""
    given = run(record=record(repository=REPOSITORY, commit="0123abcd4567"), compiled=(compiled(source="softmax/rows.py:30"),))

    assert 'href="https://code.example/me/ops/blob/0123abcd4567/kernels/softmax/rows.py#L30"' in render_html(compare([given]))


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://user:secret@code.example:8443/me/ops.git?token=x#y", "https://code.example/me/ops"),
        ("git@code.example:me/ops.git", "https://code.example/me/ops"),
        ("/home/me/ops", ""),
        ("http://[", ""),
        ("file:///home/me/ops", ""),
    ],
)
def test_an_address_has_no_credentials(url, address):
    """It is in every report."""
    assert public_address(url) == address


def test_the_remote_is_recorded_with_the_path_of_the_package(tmp_path):
    """Without it, or outside of git, there is nothing to record."""
    assert repository_of(tmp_path) == ""
    (tmp_path / "ops").mkdir()
    subprocess.run(["git", "-C", str(tmp_path), "init", "-q"], check=True)
    assert repository_of(tmp_path / "ops") == ""
    subprocess.run(["git", "-C", str(tmp_path), "remote", "add", "origin", "https://me:secret@code.example/me/all.git"], check=True)
    assert repository_of(tmp_path / "ops") == "https://code.example/me/all#ops"


def test_the_page_shows_what_a_tuner_chose():
    """Once for all cases with the same configuration."""
    points = tuple(dataclasses.replace(sample(1 << n), tuned={"softmax_kernel": "BLOCK: 1024, num_warps: 8"}) for n in range(8, 13))
    page = render_html(compare([run(samples=points)]))

    assert page.count("BLOCK: 1024, num_warps: 8") == 1
    assert "and 2 more" in page
