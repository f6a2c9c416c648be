"""disagg-sim's servers: fake context and generation servers, a real orchestrator, and the pure core they share."""
