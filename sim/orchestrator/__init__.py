"""The orchestrator: context-first flow, and the token stream relayed through a per-chunk policy."""
