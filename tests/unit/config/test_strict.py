"""A file that a user wrote and that says what it may not: which key, what was found there, and what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict

from warpwave.config.files import refuse, validate
from warpwave.errors import ConfigError


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Inner(Strict):
    size: int = 0
    kind: Literal["a", "b"] = "a"
    names: list[str] = []


class File(Strict):
    one: Inner = Inner()
    some: list[Inner] = []
    named: dict[str, Inner] = {}
    needed: int = 0
    maybe: Inner | None = None


UNKNOWN = "found a key that does not exist, allowed is one of"
INNER = f"{UNKNOWN} size, kind, names."
WRONG = {
    "a key": ({"x": 1}, f"x: {UNKNOWN} one, some, named, needed, maybe."),
    "a key of a table": ({"one": {"x": 1}}, f"one.x: {INNER}"),
    "a key of a table in a list": ({"some": [{}, {"x": 1}]}, f"some[1].x: {INNER}"),
    "a key of a named table": ({"named": {"n": {"x": 1}}}, f"named.n.x: {INNER}"),
    "a key of a table that may be missing": ({"maybe": {"x": 1}}, f"maybe.x: {INNER}"),
    "a choice": ({"one": {"kind": "c"}}, "one.kind: found 'c', allowed is 'a' or 'b'."),
    "a number": ({"one": {"size": "x"}}, "one.size: found 'x', allowed is a valid integer, unable to parse string as an integer."),
    "no table": ({"one": 3}, "one: found 3, allowed is a table."),
    "one table": ({"some": {"size": 1}}, "some: found one table, allowed is a list of tables, each headed [[some]]."),
    "an entry": ({"one": {"names": ["a", 2]}}, "one.names[1]: found 2, allowed is a valid string."),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_with_what_is_allowed(name):
    """The first of it, with the file; the remedy names the page that shows every key."""
    raw, expected = WRONG[name]
    with pytest.raises(ConfigError) as caught:
        validate(File, raw, Path("a.toml"), "the page shows every key")

    assert caught.value.happened == f"a.toml: {expected}"
    assert caught.value.remedy.endswith("; the page shows every key.")
    assert caught.value.meaning


def test_what_is_right_is_made():
    """And a key that has to be there is asked for."""

    class Needs(Strict):
        key: int

    assert validate(Needs, {"key": 1}, Path("a"), "x") == Needs(key=1)
    with pytest.raises(ConfigError, match="a: key is missing"):
        validate(Needs, {}, Path("a"), "x")


def test_a_types_own_validator_says_what_is_allowed():
    """What it looks at is what was found, unless it says otherwise."""
    from typing import Annotated

    from pydantic import AfterValidator

    def check(value):
        return refuse("an even number", "nothing" if value == 1 else "") if value % 2 else value

    class Even(Strict):
        key: Annotated[int, AfterValidator(check)]

    for value, found in ((3, "3"), (1, "nothing")):
        with pytest.raises(ConfigError, match=f"a: key: found {found}, allowed is an even number."):
            validate(Even, {"key": value}, Path("a"), "x")
