"""Runs the assembly of `tl.inline_asm_elementwise` in Triton's interpreter: PTX, one instruction after another, on all elements at once."""
