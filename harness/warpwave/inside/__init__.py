"""The half that runs beside the GPU. It may import the standard library, torch, triton and pytest, and nothing else.

The host never imports it, but starts it by name (`python -m warpwave.inside job.json`). Each stage is a separate process.
"""
