"""One stage on several GPUs: who does what, and how the results come together."""
