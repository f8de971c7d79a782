from kernels.add.add import add as add
