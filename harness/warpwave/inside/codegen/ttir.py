"""Read Triton's first code (TTIR, Gluon's is like it) as Triton prints it: regions between braces, one operation a line."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field


@dataclass
class Operation:
    """One operation. `text` is what stands between its name and its types; `types` are those of its results."""

    name: str
    results: list[str]
    text: str
    types: list[str]
    location: str
    regions: list[list[Block]] = field(default_factory=list)

    @functools.cached_property
    def operands(self) -> list[str]:
        """The names of the values that it takes, in order."""
        return VALUE.findall(self.text)

    def number(self, name: str) -> int:
        """Return an attribute such as `axis = 1`; 0 if it has none."""
        found = re.search(rf"\b{name} = (-?\d+)", self.text)
        return int(found[1]) if found else 0


@dataclass
class Block:
    """A block of operations; `arguments` are names and types."""

    label: str
    arguments: list[tuple[str, str]]
    operations: list[Operation] = field(default_factory=list)


VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
_INNER = r'(?:[^()"]|"[^"]*")*'
_LOCATION = re.compile(rf"\s*loc\({_INNER}(?:\({_INNER}(?:\({_INNER}\){_INNER})*\){_INNER})*\)")
_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_FUNCTION = re.compile(r"\s*tt\.func (?:(public|private) )?@\"?([\w$.-]+)\"?\((.*)")
_OPERATION = re.compile(r'(?:(%[^=]*?) = )?"?([a-z_]\w*\.[\w.]+)"?\s*(.*)$')
_ARGUMENT = re.compile(r"(%[\w$.-]+): ((?:[^,(){}<>]|<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>)+)")
PASSED = re.compile(r"(%[\w$.-]+) = (%[\w$.-]+(?:#\d+)?)")
_TYPE = re.compile(r"(?:[^,()<>]|<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>)+")
TENSOR = re.compile(r"tensor<((?:\d+x)*)((?:[^,<>]|<(?:[^<>]|<[^<>]*>)*>)+)")  # Gluon's have a layout behind it


class Module:
    """A module's functions, by name."""

    def __init__(self, text: str) -> None:
        self._aliases = dict(_ALIAS.findall(text))
        self._lines = iter(text.splitlines())
        self.kernels: list[str] = []
        self.functions: dict[str, list[Block]] = {}
        for line in self._lines:
            if found := _FUNCTION.match(line):
                visibility, name, head = found.groups()
                self.functions[name] = self._region(_ARGUMENT.findall(_LOCATION.sub("", head).partition(") attributes")[0]))[0]
                self.kernels += [name] * (visibility != "private")

    def _region(self, arguments: list[tuple[str, str]]) -> tuple[list[Block], str]:
        """Return the blocks up to the brace that closes them, and the line with that brace."""
        blocks = [Block("^bb0", arguments)]
        for raw in self._lines:
            line = raw.strip()
            if line.startswith("}"):
                return blocks, line
            if line.startswith("^"):
                label, _, rest = _LOCATION.sub("", line.partition("//")[0]).partition("(")
                block = Block(label.strip().rstrip(":"), _ARGUMENT.findall(rest))
                # The printer leaves out the first label where the operation says what the block gets.
                blocks = [*blocks, block] if blocks[-1].operations else [block]
            elif line:
                self._operation(line, blocks[-1])
        return blocks, ""

    def _operation(self, line: str, block: Block) -> None:
        regions, last = [], line
        while _LOCATION.sub("", last).rstrip().endswith("{"):
            region, last = self._region([])
            regions.append(region)
        first = _LOCATION.sub("", line).rstrip().removesuffix("{").removesuffix("(").rstrip()
        if not (found := _OPERATION.match(first)):
            return
        named, name, text = found.groups()
        results = [each.strip() for each in (named or "").split(",") if each.strip()]
        if results and ":" in results[0]:  # `%a:2`
            base, _, count = results[0].partition(":")
            results = [f"{base}#{place}" for place in range(int(count))]
        behind = _LOCATION.sub("", last).rpartition(" : ")[2] if regions else text.rpartition(" : ")[2]
        types = behind.rpartition("->")[2].rpartition(" to ")[2].strip().removeprefix("(").removesuffix(")")
        if name.startswith("scf."):
            types = text.partition("->")[2].strip().removeprefix("(").partition(")")[0]
        elif not regions and not name.startswith("cf."):
            text = text.rpartition(" : ")[0] or text
        location = _LOCATION.findall(last)
        block.operations.append(
            Operation(name, results, text, _TYPE.findall(types), location[-1].strip()[4:-1] if location else "", regions)
        )

    def place(self, location: str) -> tuple[str, int, int]:
        """Return file, line and column in the author's source: for what is inlined from Triton's own language, where it is called."""
        if found := re.match(r'"([^"]*)":(\d+):(\d+)', location):
            return found[1], int(found[2]), int(found[3])
        if found := re.match(r"callsite\((.*?) at (.*)\)$", location):
            inner = self.place(found[1])
            return inner if inner[0] and "/triton/language/" not in inner[0] else self.place(found[2])
        if found := re.match(r'(?:"[^"]*"\()?(#loc\d*)', location):
            return self.place(self._aliases.get(found[1], ""))
        return "", 0, 0
