"""Which variables a file of a package may set: only names that choose how its own kernels run.

The file may be a stranger's. What the user gives with `--env` is the user's own, and is not asked here.
"""

from __future__ import annotations

import re

ALLOWED = "a setting of Triton or torch that loads nothing, or a name of the package's own, such as MYPACKAGE_FAST"

# Of Triton and torch, these choose how code is compiled and run. None names a program, a library or a folder.
_KNOWN = re.compile(
    r"TRITON_(F32_DEFAULT|DISABLE_LINE_INFO|ALLOW_NON_CONSTEXPR_GLOBALS|PRINT_AUTOTUNING|DEBUG|ALWAYS_COMPILE|ENABLE_\w+|USE_\w+)"
    r"|TORCH_(ALLOW_TF32\w*|BLAS_PREFER_\w+|LOGS)|TORCHINDUCTOR_(MAX_AUTOTUNE\w*|COMPILE_THREADS|FREEZING)|TORCHDYNAMO_(DISABLE|VERBOSE)"
    r"|PYTORCH_(ALLOC_CONF|CUDA_ALLOC_CONF|HIP_ALLOC_CONF|ENABLE_\w+)|TOKENIZERS_PARALLELISM|(OMP|MKL)_NUM_THREADS|HF_HUB_OFFLINE"
)
# An own name has two words or more. The first is none of a system, a tool, an interpreter, a compiler or a vendor's driver.
_OWN = re.compile(r"(?P<first>[A-Z][A-Z0-9]*)_[A-Z0-9_]+")
_OTHERS = re.compile(
    r"LD|DYLD|GLIBC|GCONV|MALLOC|LOCPATH|NLSPATH|BASH|ENV|ZSH|KSH|PROMPT|SHELL|PYTHON\w*|PYTEST|PIP|UV|CONDA|VIRTUAL|GIT|SSH|GPG|DOCKER|PODMAN"
    r"|CONTAINER|APPTAINER\w*|SINGULARITY\w*|ENROOT|PYXIS|SLURM\w*|SBATCH|SRUN|PMIX?|OMPI|UCX|MPI|I|WARPWAVE|GITHUB|ACTIONS|RUNNER|CI|AWS|AZURE|GOOGLE"
    r"|HTTPS?|FTP|NO|ALL|REQUESTS|SSL|CURL|XDG|DBUS|SYSTEMD|SUDO|LC|JAVA|JDK|NODE|NPM|PERL\w*|RUBY\w*|LUA|GCC|CC|CXX|CPATH|C|CPLUS|CMAKE|CLANG|LLVM"
    r"|NVCC|MLIR|LIBRARY|PKG|MAKE|COMPILER|TMP|TEMP|HOME|PATH|USER|TRITON|TORCH\w*|PYTORCH|CUDA|NV|NVIDIA|NVTX|NCCL|CUBLAS|CUDNN|ROCM?|HIP|HIPCC|HSA"
    r"|AMD|AMDGPU|MIOPEN|ROCR|ROCBLAS|ROCPROFILER|ROCP|RCCL|GPU|ZE|ZET|ONEAPI|SYCL|VK|OCL|OPENCL|LIBGL|KMP|OMP|MKL|OPENBLAS|NUMBA|JAX|XLA|HF"
)


def may_set(name: str) -> bool:
    """Return whether a package's file may set this variable."""
    own = _OWN.fullmatch(name)
    return bool(_KNOWN.fullmatch(name)) or (own is not None and not _OTHERS.fullmatch(own["first"]))
