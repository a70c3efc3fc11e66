"""What is measured during a run: one file a quantity, and the recorder that decides when and where.

Each probe is a function of tensors with a leading seed dimension that returns one number a seed, in float64:
float32 norms read 0 below 1e-23 and inf above 1e18.
"""
