from kernels.rms_norm.rms_norm import rms_norm as rms_norm
