from kernels.dropout.dropout import dropout as dropout
