"""Check every access in Triton's interpreter: is it in bounds, was it written, and does another program race with it?"""
