"""What kernels may write and Triton's interpreter lacks, or reads otherwise than the compiler."""
