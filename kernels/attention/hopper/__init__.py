"""Attention for Hopper, in Gluon: warp-specialised kernels, and the host code that launches them."""
