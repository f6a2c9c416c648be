"""The bench: what a token costs in our relay, beside the relays, fakes and load clients that others run."""
