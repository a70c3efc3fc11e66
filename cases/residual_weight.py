"""The residual weight of Post-LN: what is left of the input after l sub-layers.

Source: kexue.fm/archives/8747: independent branches of unit variance leave 2^(-l/2). It is so in a network of
feed-forward sub-layers alone whose branches keep unit variance (the factor 2 of He's initialisation on the second
matrix only). It is not why Post-LN fails to train: see collapse.py.
"""

from stabilitysuite import Case, Gaussian, He, Transformer, shortcut_weight

post_ln_residual_weight = Case(
    says="after 12 feed-forward sub-layers of Post-LN the input is left with a weight of 2^(-6)",
    source="kexue.fm/archives/8747",
    model=Transformer(layers=12, width=64, norm="post", attention=False, init=He(ffn_in=2**-0.5)),
    task=Gaussian(tokens=16, batch=4),
    seeds=32,
    expect=shortcut_weight("last").near(2**-6, within=0.3, published=2**-6),
    control=dict(ffn_out=0.5),
)
