"""The parts that all benchmarks share: runs, peers, reports and pictures."""
