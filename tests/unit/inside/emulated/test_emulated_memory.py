"""What a suite of hundreds of kernels keeps in memory on an emulated target."""

from types import SimpleNamespace

import pytest

texts = pytest.importorskip("warpwave.inside.fake_gpu.emulated", reason="the inside needs torch and triton; `nox -s tests` installs them")


def test_texts_are_read_from_the_disk_when_asked_for(tmp_path):
    """They look as Triton's own do, however they are asked for. The binary stays."""
    (tmp_path / "k.ttir").write_text("first")
    files = {name: str(tmp_path / name) for name in ("k.json", "k.ttir", "k.hsaco")}
    kernel = SimpleNamespace()

    def init(self, source):
        self.metadata_group, self.asm = files, {"ttir": source, "hsaco": b"code", "made": "not in a file"}

    texts.with_texts_on_disk(init, kernel, "first")
    (tmp_path / "k.ttir").write_text("second")

    expected = {"ttir": "second", "hsaco": b"code", "made": "not in a file"}
    assert dict(kernel.asm) == {**kernel.asm} == dict(kernel.asm.items()) == expected
    assert (kernel.asm["ttir"], kernel.asm.get("ttir"), kernel.asm.get("ptx")) == ("second", "second", None)
    assert list(kernel.asm.values()) == list(expected.values())
    with pytest.raises(KeyError, match="ptx"):
        kernel.asm["ptx"]
