"""No test function is called."""

import pytest

pytest.Function.runtest = lambda self: None
