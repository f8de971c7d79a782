"""What a workflow's last job writes from the comparison. All data is made up."""

from synthetic import no_gpu

from warpwave.ci.job import COMMENT_BYTES, MARKER, comment, summary
from warpwave.compare import compare


def test_a_comment_is_a_summary_that_can_be_found_again():
    """By its first line. The changes since the base branch stand behind the comparison, if there are some."""
    comparison = compare([no_gpu()], ["cpu"])

    assert comment(comparison) == f"{MARKER}\n{summary(comparison, '', COMMENT_BYTES)}"
    assert comment(comparison, "\n## Since\n") == comment(comparison) + "\n## Since\n"


def test_a_summary_keeps_its_limit_whatever_changed():
    """The changes get half of it at most, and end where a line ends."""
    changes = "a line of changes\n" * 1000
    text = summary(compare([no_gpu()], ["cpu"]), changes, 4000)

    assert len(text.encode()) <= 4000
    assert 80 < text.count("a line of changes\n") < 112
    assert text.rstrip().endswith("_Cut here. The artifact of this run contains the whole text._")
