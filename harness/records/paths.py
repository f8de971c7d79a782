"""Names of files through which the host, the inside, and other runs hand things to each other."""

import re

# In a stage's folder: the host's answer to a stage that asked for its card. Empty if the host has locked it.
LEASE_FILE = "lease"
# In a target's folder: kernels for another run, and those that another run compiled for this one; their list, and names of files in it.
COMPILED_FOLDER = "compile/triton-cache"
COMPILED_HERE = "compiled"
COMPILED_MANIFEST = "manifest.json"
COMPILED_NAME = re.compile(r"[A-Z2-7]{40,64}/[A-Za-z0-9_][\w.-]{0,249}")
# Files of a compiled kernel: what Triton's stages leave, of every vendor. Nothing that a processor of the host executes.
COMPILED_KINDS = (".json", ".ttir", ".ttgir", ".llir", ".ptx", ".cubin", ".amdgcn", ".hsaco", ".spv", ".source")
# In a target's folder: how compiling ahead ended.
AHEAD_FILE = "bench/ahead.json"
