"""Gated attention units at initialisation: how large a branch is beside its input.

Source: kexue.fm/archives/8990, which takes the attention matrix for its diagonal and so finds s nu^6 / n = 0.0113
at n = 512, s = 128. The off-diagonal part, small entry by entry, adds up coherently because the values have a mean:
the branch is five times as large. The diagonal part alone is what the article says.
"""

from stabilitysuite import GAU, Case, Gaussian, branch_ratio

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
