import pytest


def test_before(wait):
    wait()


def test_culprit_that_waits(launch, wait):
    launch()
    wait()


def test_innocent(wait):
    wait()


def test_culprit_that_does_not_wait(launch):
    launch()


def test_innocent_too(wait):
    wait()


def test_beyond_a_sanitizer(launch, record_property):
    record_property("not-followed", "more than 16 bits")
    launch()
    pytest.skip("more than 16 bits")


def test_culprit_that_was_not_followed(launch, record_property):
    record_property("not-followed", "this card has no sanitizer")
    launch()


def test_innocent_at_last(wait):
    wait()


def test_fails(wait):
    wait()
    raise AssertionError("one is not two")


def test_after(wait):
    wait()
