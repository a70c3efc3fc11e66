"""Where the norm stands: Pre-LN trains at depth without warmup, where Post-LN does not.

Source: Xiong et al., 2020 (arXiv 2002.04745); kexue.fm/archives/8747. A first-order chain can be learned without
depth or attention, so the same is asked on a chain of lag 2, on which a model without attention stays on the
plateau.
"""

from stabilitysuite import Adam, Case, Markov, Transformer, converges

pre_ln_cold = Case(
    says="Pre-LN, 24 layers, converges without warmup",
    source="arXiv 2002.04745; kexue.fm/archives/8747",
    model=Transformer(layers=24, width=32, norm="pre"),
    task=Markov(vocab=32),
    optimizer=Adam(lr=1e-3),
    steps=150,
    expect=converges(),
    control=dict(norm="post"),
)

pre_ln_cold_attending = pre_ln_cold.but(
    says="Pre-LN, 24 layers, converges without warmup where only attention can leave the plateau",
    task=Markov(vocab=32, lag=2),
    optimizer=Adam(lr=2e-3),
    steps=250,
    control=dict(norm="post"),
)
