"""Initialisation: half the Xavier gain, which is close to BERT's choice, does what warmup does.

Source: kexue.fm/archives/8747: BERT's truncated normal of 0.02 is 0.49 of Xavier at width 768. Measured at width
32: gain 0.5 converges and gain 1 stalls in every seed tried at learning rates 0.7e-3, 1e-3 and 1.4e-3.
"""

from stabilitysuite import Adam, Case, Markov, Transformer, Xavier, converges, stalls

post_ln_half_gain = Case(
    says="Post-LN, 24 layers, half the Xavier gain, converges without warmup",
    source="kexue.fm/archives/8747",
    model=Transformer(layers=24, width=32, norm="post", init=Xavier(gain=0.5)),
    task=Markov(vocab=32),
    optimizer=Adam(lr=1e-3),
    steps=150,
    expect=converges(),
    control=dict(gain=1.0),
)

post_ln_full_gain = post_ln_half_gain.but(
    says="Post-LN, 24 layers, the full Xavier gain, stalls at the same rate",
    gain=1.0,
    expect=stalls(),
    control=dict(gain=0.5),
)
