"""The pure core: values in, values out; no I/O, no clock, no global randomness (a test holds it to that)."""
