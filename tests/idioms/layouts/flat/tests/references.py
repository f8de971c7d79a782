"""What the kernels are compared with."""


def activated(x):
    return x.clamp(min=0)
