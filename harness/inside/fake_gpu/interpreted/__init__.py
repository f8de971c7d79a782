"""What Triton's interpreter lacks or gets wrong: the vendors' device library, and floats that NumPy has no type for."""
