"""What is read next, and by whom: positions, offsets, ranges, tasks. Pure."""
