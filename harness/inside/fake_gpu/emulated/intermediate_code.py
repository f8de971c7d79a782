"""The texts of compiled kernels stay on the disk: Triton keeps all intermediate code of each kernel in memory, and a suite has hundreds."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, ValuesView
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from triton.compiler.compiler import AsmDict, CompiledKernel

from harness.inside.fake_gpu.torch_device import Patch

_Init = Callable[..., None]


@dataclass(frozen=True)
class _OnDisk:
    """Stands for a text that is in a file."""

    file: Path


class Texts(AsmDict):  # type: ignore[misc]
    """What Triton has as `kernel.asm`, but the texts are read each time that somebody asks for one."""

    def __getitem__(self, key: str) -> Any:
        found = super().__getitem__(key)
        return found.file.read_text(encoding="utf-8") if isinstance(found, _OnDisk) else found

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys. Without this method, `dict(kernel.asm)` would copy past `__getitem__`."""
        return iter(self.keys())

    def get(self, key: str, default: Any = None) -> Any:
        """Return a text or the binary, or `default`."""
        return self[key] if key in self else default  # noqa: SIM401 - it would call itself

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        """Return all keys with their texts, read now."""
        return {key: self[key] for key in self}.items()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        """Return all texts, read now."""
        return {key: self[key] for key in self}.values()


def with_texts_on_disk(init: _Init) -> _Init:
    """Wrap the constructor of Triton's compiled kernels."""

    def made(kernel: Any, *args: Any, **kwargs: Any) -> None:
        init(kernel, *args, **kwargs)
        files = {Path(file).suffix[1:]: Path(file) for file in kernel.metadata_group.values()}
        kernel.asm = Texts(
            {key: _OnDisk(files[key]) if isinstance(text, str) and key in files else text for key, text in kernel.asm.items()}
        )

    return cast(_Init, made)


TEXTS_ON_DISK: Patch = (CompiledKernel, "__init__", with_texts_on_disk(CompiledKernel.__init__))
