import json.a_module_that_nobody_has  # noqa: F401


def test_never():
    pass
