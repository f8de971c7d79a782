"""Start a supervisor of the inside: a Python that loads nothing but its standard library and warpwave. Variables, the current folder, and
what is installed beside torch may be the package's. A supervisor judges the package, so it loads none of them: neither `PYTHONPATH` nor a
`sitecustomize.py` or `.pth` file. Host and inside both start supervisors."""

_START = "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"


def isolated(python: str, folder: str, module: str, *arguments: str) -> tuple[str, ...]:
    """Return the words that run a module of warpwave, which lies in `folder`."""
    return (python, "-I", "-S", "-B", "-c", _START, folder, module, *arguments)
