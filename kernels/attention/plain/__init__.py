"""Attention in Triton's own language, for every card: forward, both gradients, and few queries of many keys."""
