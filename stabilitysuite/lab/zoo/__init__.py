"""The zoo: Transformers and gated attention units whose choices are orthogonal fields of their specification.

All modules carry a leading seed dimension, so that several seeds of one training run in one pass.
"""
