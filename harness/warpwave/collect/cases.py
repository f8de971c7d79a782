"""Untrusted JUnit XML → test cases, in one pass. Only what a report shows is kept. This is the only reader of XML.

It calls expat directly: a million cases are read in seconds, and attacks (document types, depth, size) are refused while the file is read,
not after a tree of it has been built.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Union
from xml.parsers import expat

from warpwave.collect.untrusted import Budget, RejectedError, Room, clip, opened
from warpwave.records import JUNIT_XFAIL, MOST_SECONDS, CaseResult, NotRun, Verdict
from warpwave.records.selection import kernel_of

# How a test case ended, in JUnit's words and in those of other tools. An unknown status is `invalid`, because it may hide a failure.

# What an `<error type="…">` may say; any other type, "passed" among them, is an error.
ERROR_TYPES = {
    verdict.value: verdict
    for verdict in (Verdict.TIMEOUT, Verdict.CRASHED, Verdict.OOM, Verdict.GPU_HANG, Verdict.INVALID, Verdict.INCOMPLETE, Verdict.INFRA)
}
RESULTS = {"failure": Verdict.FAILED, "error": Verdict.ERROR, "skipped": Verdict.NOT_RUN}
# What else a case may hold: JUnit's own, and the attempts that Maven's Surefire lists beside the result.
OTHERS = {"properties", "system-out", "system-err", "rerunFailure", "rerunError", "flakyFailure", "flakyError"}
# What other tools say in `status` or `result` of a case that has no element for it.
_STATUSES = dict.fromkeys(("failed", "failure", "fail"), Verdict.FAILED)
_STATUSES |= dict.fromkeys(("error", "errored", "broken", "crashed", "aborted"), Verdict.ERROR)
_STATUSES |= dict.fromkeys(("notrun", "skipped", "disabled", "suppressed", "pending", "ignored"), Verdict.NOT_RUN)
_STATUSES |= dict.fromkeys(("", "passed", "pass", "ok", "success", "successful", "run", "executed", "completed"), Verdict.PASSED)
Result = tuple[Verdict, str, str, Union[NotRun, None]]  # with a message, a text, and why it did not run
PASSED: Result = (Verdict.PASSED, "", "", None)
REASONS = {why.value: why for why in NotRun}  # what a `<skipped type="…">` may say


def by_status(attributes: dict[str, str]) -> Result:
    """Return how a case ended by its attributes, where no element in it says more. What no list has may mean a failure."""
    found = PASSED
    for name in ("status", "result"):
        verdict = _STATUSES.get(attributes.get(name, "").lower(), Verdict.INVALID)
        if verdict is not Verdict.PASSED:
            found = worse(found, (verdict, f'{name}="{clip(attributes[name], 40)}"', "", None))
    return found


def worse(one: Result, other: Result) -> Result:
    """Return the worse of two results; the first of two that are alike."""
    return other if other[0].severity > one[0].severity else one


MAX_XML_BYTES = 64 << 20
MAX_XML_ELEMENTS = 1_000_000
MAX_XML_DEPTH = 32
MAX_CASES = 100_000
MAX_NAMES = 1000  # of elements and attributes; expat never forgets one
MAX_TAG_BYTES = 1 << 20  # a tag is in memory as a whole, and each attribute takes many times its size in the file
MAX_MEMORY = 256 << 20

_MAX_PROPERTIES = 64
_ID, _KERNEL, _MESSAGE, _DETAIL = 1000, 200, 2000, 20_000  # characters kept
_CASE_BYTES = 450  # beside its texts
_PROPERTY_BYTES = 20  # beside its texts
_NEW_BYTES = 700  # for the row of a test that no earlier target has
_CHUNK = 1 << 16


def read_cases(folder: Path, name: str, room: Room | None = None) -> tuple[CaseResult, ...]:
    """The cases of a JUnit file, in its order, suites in suites included.

    Raises:
        RejectedError: the file cannot be used; the text says why, and where in it.
    """
    with opened(folder, name, MAX_XML_BYTES) as file:
        budget = Budget(MAX_XML_BYTES, MAX_MEMORY, room)
        reader = _Reader(budget)
        try:
            while chunk := file.read(_CHUNK):
                reader.feed(chunk)
            reader.parser.Parse(b"", True)
        except expat.ExpatError as error:
            budget.give_back()
            raise RejectedError(f"not well-formed XML, line {error.lineno}: {expat.ErrorString(error.code)}") from None
        except RejectedError:
            budget.give_back()
            raise
    return tuple(reader.cases)


class _Reader:
    """Builds cases from expat's calls. A case is below a suite; its results and its first list of properties are directly below it."""

    def __init__(self, budget: Budget) -> None:
        self.cases: list[CaseResult] = []
        # Whatever the file declares: Python knows a hundred encodings, and JUnit files use one.
        self.parser = expat.ParserCreate("utf-8", " ")
        self.parser.buffer_text = True
        self.parser.XmlDeclHandler = self._check_encoding
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.StartDoctypeDeclHandler = self._refuse_document_type
        self._budget = budget
        self._fed = self._depth = self._elements = self._counted = self._named = 0
        self._suites: list[str] = []  # the open elements, from the root on, as long as they are suites in suites
        self._case: Union[dict[str, str], None] = None
        self._case_depth = 0
        self._properties: Union[dict[str, str], None] = None
        self._in_properties = False
        self._found: Result = PASSED
        self._result: Union[tuple[Verdict, str, Union[NotRun, None]], None] = None
        self._text = ""
        self._cut = 0

    def feed(self, chunk: bytes) -> None:
        """The next piece of the file."""
        self._budget.read(len(chunk))
        self.parser.Parse(chunk, False)
        self._fed += len(chunk)
        self._budget.parse(self._elements - self._counted)
        self._counted = self._elements
        if self._fed - self.parser.CurrentByteIndex > MAX_TAG_BYTES:
            raise RejectedError(f"it is too large: line {self.parser.CurrentLineNumber}: a tag of more than {MAX_TAG_BYTES} bytes")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        depth = self._depth
        self._depth = depth + 1
        self._elements += 1
        if self._elements > MAX_XML_ELEMENTS:
            raise RejectedError(f"it is too large: more than {MAX_XML_ELEMENTS} elements")
        if depth == MAX_XML_DEPTH:
            raise RejectedError(f"elements are nested deeper than {MAX_XML_DEPTH}")
        if len(self.parser.intern) > MAX_NAMES:
            raise RejectedError(f"it is too large: more than {MAX_NAMES} names of elements and attributes")
        if self._case is not None:
            self._start_in_case(tag, attributes, depth - self._case_depth)
        elif depth == len(self._suites) and tag in ("testsuites", "testsuite"):
            self._suites.append(tag)
        elif depth == 0:
            raise RejectedError(f"the root element is {clip(tag, 80)!r}, not testsuites or testsuite")
        elif tag == "testcase" and depth == len(self._suites) and self._suites[-1] == "testsuite":
            self._case, self._case_depth = attributes, depth
            self._properties, self._found = None, PASSED
        elif tag in ("error", "failure") and depth == len(self._suites):
            raise RejectedError(f"line {self.parser.CurrentLineNumber}: <{tag}> outside of any test")

    def _start_in_case(self, tag: str, attributes: dict[str, str], below: int) -> None:
        if self._result is not None:  # an element in a result: what is text of the result comes before it
            self.parser.CharacterDataHandler = None
        elif below == 2:
            if self._in_properties and tag == "property" and self._properties is not None:
                name = clip(attributes.get("name", ""), 200)
                key = sys.intern(name)
                self._named += sys.getsizeof(name) if key is name else 0
                if key in ("id", "kernel") or len(self._properties) < _MAX_PROPERTIES:
                    self._properties[key] = clip(attributes.get("value", ""), _ID)
        elif below == 1 and tag == "properties":
            self._in_properties = self._properties is None  # the first list counts
            if self._in_properties:
                self._properties = {}
        elif below == 1 and tag in RESULTS:
            kind = RESULTS[tag]
            if kind is Verdict.ERROR:
                kind = ERROR_TYPES.get(attributes.get("type", ""), kind)
            if kind is Verdict.NOT_RUN and attributes.get("type", "") == JUNIT_XFAIL:
                kind = Verdict.XFAILED
            why = REASONS.get(attributes.get("type", "")) if kind is Verdict.NOT_RUN else None
            self._result, self._text, self._cut = (kind, clip(attributes.get("message", ""), _MESSAGE), why), "", 0
            self.parser.CharacterDataHandler = self._add_text
        elif below == 1 and tag not in OTHERS:  # it may mean a failure
            self._found = worse(self._found, (Verdict.INVALID, f"JUnit has no element <{clip(tag, 40)}>", "", None))

    def _end(self, tag: str) -> None:
        self._depth = depth = self._depth - 1
        if self._case is None:
            if depth < len(self._suites):
                self._suites.pop()
        elif depth == self._case_depth:
            if len(self.cases) == MAX_CASES:
                raise RejectedError(f"it is too large: more than {MAX_CASES} tests")
            if self._found is PASSED and ("status" in self._case or "result" in self._case):
                self._found = by_status(self._case)
            case, new = _result(self._case, self._properties or {}, *self._found)
            # An empty text is one for all of them, and so is the name of a property.
            texts = filter(None, (case.message, case.detail, *case.properties.values()))
            row = _NEW_BYTES + sys.getsizeof(case.id) if new else 0
            self._budget.keep(_CASE_BYTES + _PROPERTY_BYTES * len(case.properties) + sum(map(sys.getsizeof, texts)) + self._named + row)
            self._named = 0
            self.cases.append(case)
            self._case = None
        elif depth == self._case_depth + 1:
            self._in_properties = False
            if self._result is not None:
                verdict, message, why = self._result
                text = self._text + (f" … {self._cut} characters cut" if self._cut else "")
                self._found = worse(self._found, (verdict, message, text, why))
                self._result, self.parser.CharacterDataHandler = None, None

    def _add_text(self, text: str) -> None:
        room = _DETAIL - len(self._text)
        self._text += text[:room]
        self._cut += len(text) - len(text[:room])

    def _check_encoding(self, version: str, encoding: Union[str, None], standalone: int) -> None:
        if encoding is not None and encoding.lower() not in ("utf-8", "us-ascii"):
            raise RejectedError(f"its encoding is {clip(encoding, 40)!r}, not UTF-8")

    def _refuse_document_type(self, *_: object) -> None:
        raise RejectedError("it declares a document type or entities, which a report never needs")


def _result(
    attributes: dict[str, str], properties: dict[str, str], verdict: Verdict, message: str, detail: str, why: Union[NotRun, None]
) -> tuple[CaseResult, bool]:
    """The case, and whether its name is a new one: the same test is in many files, and its text and its row are kept once."""
    name = properties.pop("id", "") or "::".join(part for part in (attributes.get("classname"), attributes.get("name")) if part)
    if not name:
        raise RejectedError("a testcase has neither an id nor a name")
    kernel = properties.pop("kernel", "") or kernel_of(name.partition("::")[0])
    name = clip(name, _ID)
    case = CaseResult(
        id=sys.intern(name),
        kernel=sys.intern(clip(kernel, _KERNEL)),
        verdict=verdict,
        seconds=_seconds(attributes.get("time", "")),
        message=message,
        detail=detail,
        properties=properties,
        not_run=why,
    )
    return case, case.id is name


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return seconds if 0 < seconds < MOST_SECONDS else 0.0
