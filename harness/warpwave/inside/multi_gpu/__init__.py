"""One stage on several GPUs: how the work is shared, and how the results are joined."""
