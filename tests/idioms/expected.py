"""What each test of this folder comes to on a machine without a card; tests/unit/inside/fake_gpu/test_idioms.py holds a run against it.

On a card, plain `pytest tests/idioms` is the control: there every test passes or is skipped by its author.
Without one, a test passes in Triton's interpreter, and compiling runs it to its end. The tables name every exception.
"""

# Skipped by the author in the interpreter, with the start of the reason.
NOT_INTERPRETED = {
    "checks/test_selection.py::test_not_for_the_interpreter": "not for the interpreter",
    "host/test_launching.py::test_the_generated_code": "the interpreter generates no code",
}
# Skipped by the author everywhere.
SKIPPED = {"checks/test_selection.py::test_a_parameter_that_is_skipped[1099511627776]": "too large"}
# Skipped by the author on a card of these architectures; in the interpreter, on the card that it pretends.
SKIPPED_ON = {
    "checks/test_selection.py::test_one_vendor": ("gfx942", "for NVIDIA's cards"),
    "checks/test_selection.py::test_the_other_vendor": ("sm_90", "for AMD's cards"),
    "host/test_launching.py::test_a_descriptor_made_by_the_host": ("gfx942", "needs TMA"),
    "kernels/test_kernels_language.py::test_a_reduction_through_a_descriptor": ("gfx942", "needs TMA"),
    "kernels/test_kernels_language.py::test_a_launch_that_waits_for_the_one_before": ("gfx942", "needs Hopper"),
    "kernels/test_inline_assembly.py::test_an_approximation": ("gfx942", "PTX"),
    "kernels/test_inline_assembly.py::test_two_elements_in_a_register": ("gfx942", "PTX"),
    "kernels/test_inline_assembly.py::test_four_elements_and_two_results": ("gfx942", "PTX"),
    "kernels/test_inline_assembly.py::test_the_warps_of_a_launch": ("gfx942", "PTX"),
}
# The idiom is a decision by the data of a tensor: compiling ends there, after a first launch.
DECIDED_BY_DATA = {
    "checks/test_checks.py::test_a_branch_on_a_number_that_python_makes_its_own",
    "checks/test_checks.py::test_a_branch",
    "checks/test_checks.py::test_a_branch_on_a_computed_number",
    "checks/test_checks.py::test_a_branch_on_the_largest",
    "checks/test_checks.py::test_a_helper_whose_answer_decides",
    "checks/test_checks.py::test_a_helper_that_must_not_hold",
    "checks/test_checks.py::test_a_size",
    "checks/test_checks.py::test_a_mask",
    "checks/test_checks.py::test_an_index",
    "checks/test_checks.py::test_a_loop_over_lengths",
    "checks/test_checks.py::test_a_loop_until_it_converges",
}
# The author's xfail: an expected failure in the report, with the author's reason; compiling may end there.
EXPECTED_TO_FAIL = {"checks/test_selection.py::TestOfAClass::test_expected_to_fail": "known"}
# Kernels that only one architecture compiles, since the other's tests are skipped.
COMPILED_FOR = {"tma_kernel": {"sm_90"}, "reducing_kernel": {"sm_90"}, "dependent_kernel": {"sm_90"}}
COMPILED_FOR |= {name: {"sm_90"} for name in ("exp2_kernel", "pairs_kernel", "bytes_kernel", "warps_kernel")}
# Kernels that a test also launches so that they must not compile.
REFUSED = {"square_kernel", "even_kernel"}
# Functions that kernels call, and those that a tuner wraps under another name.
NOT_LAUNCHED = {
    "relu",
    "square",
    "affine",
    "power",
    "negative",
    "larger_side",
    "sum_and_product",
    "order",
    "plus_three",
    "width_of",
    "half_of",
    "barrier",
}
