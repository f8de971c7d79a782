"""The half that runs where the GPU is: standard library, torch, triton and pytest, nothing else.

The host never imports it; it starts it by name (`python -m harness.inside job.json`). Each stage is a process of its own.
"""
