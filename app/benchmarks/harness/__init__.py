"""What the benchmark cases share: runs, peers, reports and pictures."""
