"""Names that want to be something else on a page or in a terminal."""

from synthetic import case, compiled, record, run, sample

from warpwave.compare import compare
from warpwave.records import Verdict

PAGE_NAMES = (
    '</script><script>alert(1)</script>" onmouseover="alert(1)',  # the next one and the fifth
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "' autofocus onfocus='alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt; &amp;",
    "\u2028\u2029\u202egnp",
    "\x00\x1b[31m",
    "javascript:alert(1)",
    "</title></style></svg><base href=//evil.example>",
)


def hostile(name: str):
    """Two targets; on the first, every text from outside is `name`."""
    failed = case(f"softmax/{name}", Verdict.FAILED, kernel=name, message=name, detail=name, properties={name: "1.5"})
    return compare(
        [
            run(
                name,
                record=record(
                    name,
                    label=name,
                    verdict=Verdict.FAILED,
                    reason=name,
                    hint=name,
                    commit=name,
                    command=("warpwave", "run", "--kernels", name),
                ),
                cases=(failed, case()),
                samples=(
                    sample(kernel=name, provider=name, unit=name),
                    sample(case=name, kernel=name, provider=name, unit=name, params={"N": name}),
                ),
                compiled=(compiled(name, kernel=name, function=name, verdict=Verdict.FAILED, reason=name),),
                problems=(name,),
            ),
            run(),
        ],
        [name, "alpha"],
    )


TERMINAL_NAMES = (
    "[bold]x[/bold]",
    "[/dev/kfd]",
    "\x1b[31mred",
    "\x9b2J",
    "a\r\nb\tc",
    "::error::owned",
    "##[error]owned",
    "\u202egnp",
    "\ud800",
    "日本" * 60,
)
