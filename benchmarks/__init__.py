"""Speed and memory, measured: ``make bench`` and ``make bench-peers``. Not tests: a busy machine is no failure."""
