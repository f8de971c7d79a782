"""Runs in the Python of the kernels, on the host or while an image is built; standard library and pip only. Imports nothing of warpwave."""
