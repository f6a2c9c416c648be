"""The experiment: topology, blocks, statistics, verdict, report, command line."""
