from kernels.gelu.gelu import gelu as gelu
