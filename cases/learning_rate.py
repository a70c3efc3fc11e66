"""Too large a learning rate: what it looks like depends on the norm.

LayerNorm in Post-LN bounds the logits, so a Post-LN model stalls or collapses rather than blow up; Pre-LN has a
residual stream without bounds and diverges in the narrow sense. Sources: kexue.fm/archives/8747 speaks of divergence
for both; the settings were searched here.
"""

from stabilitysuite import Adam, Case, Markov, Transformer, Xavier, collapses, diverges

pre_ln_at_rate_one = Case(
    says="Pre-LN, 12 layers, at learning rate 1 diverges in the narrow sense: the loss leaves its start upwards",
    source="measured here",
    model=Transformer(layers=12, width=32, norm="pre"),
    task=Markov(vocab=32),
    optimizer=Adam(lr=1.0),
    steps=40,
    expect=diverges(),
    control=dict(lr=1e-2),
)

post_ln_learns_then_collapses = Case(
    says="Post-LN, 24 layers, learns under its warmup and falls back to the plateau as the rate goes on rising",
    source="measured here",
    model=Transformer(layers=24, width=32, norm="post", init=Xavier(gain=0.5)),
    task=Markov(vocab=32),
    optimizer=Adam(lr=2e-2),
    warmup=150,
    steps=200,
    expect=collapses(),
    control=dict(lr=5e-3),
)
