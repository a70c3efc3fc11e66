"""Gated attention units at initialisation: how large a branch is beside its input.

Source: kexue.fm/archives/8990, which takes the attention matrix for its diagonal and so finds s nu^6 / n = 0.0113
at n = 512, s = 128. The off-diagonal part, small entry by entry, adds up coherently because the values have a mean:
the branch is five times as large. The diagonal part alone is what the article says.
"""

from stabilitysuite import GAU, Adam, Case, Gaussian, Markov, Xavier, branch_ratio, converges

gau_branch = Case(
    says="a GAU branch is 0.045 to 0.065 of its input at initialisation, not 0.01",
    source="kexue.fm/archives/8990",
    model=GAU(width=768, key=128),
    task=Gaussian(tokens=512),
    expect=branch_ratio().between(0.045, 0.065, published=0.01126),
    control=dict(kernel="diagonal"),
)

gau_branch_diagonal = gau_branch.but(
    says="the diagonal part of a GAU branch alone is the published s nu^6 / n within 20 %",
    kernel="diagonal",
    expect=branch_ratio().near(0.01126, within=0.2),
    seeds=64,
    control=dict(kernel="full"),
)

# The exponent with Swish is no constant: the values' mean is quadratic in the factor, and how much it weighs depends
# on the number of tokens. Measured between factors 0.5 and 1: 8.84, 9.17 and 9.41 at 256, 512 and 1024 tokens.
gau_exponent_relu = Case(
    says="with ReLU a GAU branch shrinks as the seventh power of a factor on all its matrices",
    source="kexue.fm/archives/8990",
    model=GAU(width=256, key=128, activation="relu"),
    task=Gaussian(tokens=512),
    seeds=8,
    sweep=dict(gain=(0.5, 0.63, 0.79, 1.0)),
    expect=branch_ratio().scales_with("gain", exponent=7, within=0.1, published=7),
    control=dict(activation="swish"),
)

gau_exponent_swish = gau_exponent_relu.but(
    says="with Swish, which is no homogeneous function, the exponent is about 9.2, not 7",
    activation="swish",
    expect=branch_ratio().scales_with("gain", exponent=9.2, within=0.3, published=7),
    control=dict(activation="relu"),
)

gau_deep = Case(
    says="48 GAU layers train without warmup, where a Post-LN Transformer of 24 layers does not",
    source="kexue.fm/archives/8990",
    model=GAU(layers=48, width=32, key=16, causal=True, init=Xavier()),
    task=Markov(vocab=32),
    optimizer=Adam(lr=3e-3),
    steps=100,
    expect=converges(),
    control=dict(gain=2.0),
)
