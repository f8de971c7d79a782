"""Untrusted JUnit XML → test cases, in one pass: of a file nothing is kept but what a report shows. The only reader of XML.

It speaks to expat itself: a million cases are read in seconds, and what an attacker sends (document types, depth, size) is refused while it
comes in, not after a tree of it has been built.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path, PurePosixPath
from typing import Union
from xml.parsers import expat

from harness import guard
from harness.guard import RejectedError, clip, read_bytes
from harness.records import CaseResult, Verdict

# What an `<error type="…">` may say; any other type, "passed" among them, is an error.
_ERROR_TYPES = {
    verdict.value: verdict
    for verdict in (Verdict.TIMEOUT, Verdict.CRASHED, Verdict.OOM, Verdict.GPU_HANG, Verdict.INCOMPLETE, Verdict.INFRA)
}
_RESULTS = {"failure": Verdict.FAILED, "error": Verdict.ERROR, "skipped": Verdict.NOT_RUN}
_PASSED = (Verdict.PASSED, "", "")
_MAX_CASES = 100_000
_MAX_PROPERTIES = 64


def read_cases(folder: Path, name: str) -> tuple[CaseResult, ...]:
    """The cases of a JUnit file, in its order, suites in suites included.

    Raises:
        RejectedError: the file cannot be used; the text says why, and where in it.
    """
    data = read_bytes(folder, name, guard.MAX_XML_BYTES)
    reader = _Reader()
    try:
        reader.parser.Parse(data, True)
    except expat.ExpatError as error:
        raise RejectedError(f"not well-formed XML, line {error.lineno}: {expat.ErrorString(error.code)}") from None
    except (ValueError, LookupError) as error:  # an encoding that does not exist, or cannot hold these bytes
        raise RejectedError(f"not readable as XML: {clip(str(error), 200)}") from None
    return tuple(reader.cases)


class _Reader:
    """What expat tells, put together. A case is below a suite; its results and its first list of properties are right below it."""

    def __init__(self) -> None:
        self.cases: list[CaseResult] = []
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.StartDoctypeDeclHandler = self._refuse_document_type
        self._depth = self._elements = 0
        self._most_elements = guard.MAX_XML_ELEMENTS
        self._suites: list[str] = []  # the open elements, from the root on, as long as they are suites in suites
        self._case: Union[dict[str, str], None] = None
        self._case_depth = 0
        self._properties: Union[dict[str, str], None] = None
        self._in_properties = False
        self._found = _PASSED
        self._result: Union[tuple[Verdict, str], None] = None
        self._text: list[str] = []

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        depth = self._depth
        self._depth = depth + 1
        self._elements += 1
        if self._elements > self._most_elements:
            raise RejectedError(f"it is too large: more than {self._most_elements} elements")
        if depth == guard.MAX_XML_DEPTH:
            raise RejectedError(f"elements are nested deeper than {guard.MAX_XML_DEPTH}")
        if self._case is not None:
            self._start_in_case(tag, attributes, depth - self._case_depth)
        elif depth == len(self._suites) and tag in ("testsuites", "testsuite"):
            self._suites.append(tag)
        elif depth == 0:
            raise RejectedError(f"the root element is {clip(tag, 80)!r}, not testsuites or testsuite")
        elif tag == "testcase" and depth == len(self._suites) and self._suites[-1] == "testsuite":
            self._case, self._case_depth = attributes, depth
            self._properties, self._found = None, _PASSED

    def _start_in_case(self, tag: str, attributes: dict[str, str], below: int) -> None:
        if self._result is not None:  # an element in a result: what is text of the result comes before it
            self.parser.CharacterDataHandler = None
        elif below == 2:
            if self._in_properties and tag == "property" and self._properties is not None:
                self._properties[clip(attributes.get("name", ""), 200)] = clip(attributes.get("value", ""), 1000)
        elif below == 1 and tag == "properties":
            self._in_properties = self._properties is None  # the first list counts
            if self._in_properties:
                self._properties = {}
        elif below == 1 and tag in _RESULTS:
            kind = _RESULTS[tag]
            if kind is Verdict.ERROR:
                kind = _ERROR_TYPES.get(attributes.get("type", ""), kind)
            self._result, self._text = (kind, attributes.get("message", "")), []
            self.parser.CharacterDataHandler = self._text.append

    def _end(self, tag: str) -> None:
        self._depth = depth = self._depth - 1
        if self._case is None:
            if depth < len(self._suites):
                self._suites.pop()
        elif depth == self._case_depth:
            if len(self.cases) == _MAX_CASES:
                raise RejectedError(f"it is too large: more than {_MAX_CASES} tests")
            self.cases.append(_result(self._case, self._properties or {}, *self._found))
            self._case = None
        elif depth == self._case_depth + 1:
            self._in_properties = False
            if self._result is not None:
                verdict, message = self._result
                if verdict.severity > self._found[0].severity:
                    self._found = (verdict, message, "".join(self._text))
                self._result, self.parser.CharacterDataHandler = None, None

    def _refuse_document_type(self, *_: object) -> None:
        raise RejectedError("it declares a document type or entities, which a report never needs")


def _result(attributes: dict[str, str], properties: dict[str, str], verdict: Verdict, message: str, detail: str) -> CaseResult:
    name = properties.pop("id", "") or "::".join(part for part in (attributes.get("classname"), attributes.get("name")) if part)
    if not name:
        raise RejectedError("a testcase has neither an id nor a name")
    kernel = properties.pop("kernel", "") or _kernel(name)
    if len(properties) > _MAX_PROPERTIES:
        properties = dict(list(properties.items())[:_MAX_PROPERTIES])
    return CaseResult(
        # The same test is in many files, under the same name.
        id=sys.intern(clip(name, 1000)),
        kernel=sys.intern(clip(kernel, 200)),
        verdict=verdict,
        seconds=_seconds(attributes.get("time", "")),
        message=clip(message, 2000),
        detail=clip(detail, 20_000),
        properties=properties,
    )


def _kernel(name: str) -> str:
    """The top folder of the test file; for a test file that lies in none, its name without `test_`."""
    path = name.partition("::")[0]
    top, slash, _ = path.partition("/")
    if slash and top not in ("", "."):
        return top
    parts = PurePosixPath(path)
    return parts.parts[0] if len(parts.parts) > 1 else parts.stem.removeprefix("test_")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0
