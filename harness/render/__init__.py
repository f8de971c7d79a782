"""Comparison → text. Strings (or rich renderables) out, nothing else: no file, no clock, no environment; writing is `report`'s job."""
