"""A compiler whose binary is Triton's own IR, and whose architecture is a mapping of facts."""

import hashlib
from types import SimpleNamespace

from triton.backends.compiler import BaseBackend


DEFAULTS = {
    "num_warps": 4,
    "num_stages": 2,
    "num_ctas": 1,
    "warp_size": 16,
    "debug": False,
    "sanitize_overflow": False,
    "supported_fp8_dtypes": (),
    "deprecated_fp8_dot_operand_dtypes": (),
    "default_dot_input_precision": "ieee",
    "allowed_dot_input_precisions": ("ieee",),
    "max_num_imprecise_acc_default": 0,
    "instrumentation_mode": "",
    "fpsan_homomorphic_casts": False,
}


class Options(SimpleNamespace):
    """Whatever this version of Triton passes, over the defaults."""

    def hash(self):
        return hashlib.sha256(repr(sorted(vars(self).items())).encode()).hexdigest()


class ThirdBackend(BaseBackend):
    binary_ext = "thirdbin"

    @staticmethod
    def supports_target(target):
        return target.backend == "third"

    def hash(self):
        return f"third-{self.target.arch['arch']}"

    def parse_options(self, options):
        told = {name: value for name, value in options.items() if value is not None}
        return Options(**{**DEFAULTS, **told, "arch": self.target.arch["arch"]})

    def pack_metadata(self, metadata):
        return metadata

    def get_codegen_implementation(self, options):
        return {"min_dot_size": lambda *types: (1, 1, 1)}

    def get_module_map(self):
        return {}

    def load_dialects(self, context):
        pass

    def add_stages(self, stages, options, language):
        stages["ttir"] = lambda module, metadata: module
        stages["thirdbin"] = self.make_binary

    def make_binary(self, module, metadata):
        metadata |= {"name": "kernel", "shared": 16 * self.target.arch["units"]}
        return b"THIRD" + str(module).encode()
