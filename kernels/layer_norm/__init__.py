from kernels.layer_norm.layer_norm import layer_norm as layer_norm
