"""Tests that die in every way that leaves plain pytest without a JUnit file; run by the harness's own tests, never by themselves."""

import ctypes
import os
import signal

import pytest


def test_before(record_property):
    record_property("max_abs_err", 0.5)


def test_segfault():
    os.kill(os.getpid(), signal.SIGSEGV)


def test_exit():
    os._exit(3)


def test_hang_in_c():
    libc = ctypes.CDLL(None)
    mutex = ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)  # never returns and never sees a Python signal, as a kernel that does not end


def test_fails():
    assert 1 == 2, "one is not two"


@pytest.mark.skip(reason="needs two GPUs")
def test_skipped():
    pass


@pytest.fixture
def broken():
    raise RuntimeError("no such fixture data")


def test_error(broken):
    pass


def test_after():
    pass
