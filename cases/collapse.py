"""Why Post-LN fails: the tokens collapse onto each other, which needs attention.

Source: measured here, against the cause that kexue.fm/archives/8747 gives (the residual weight 2^(-l/2)): with
attention left out the residual weights are the same, and the model trains.
"""

from stabilitysuite import Adam, Case, Markov, Transformer, Xavier, converges, fails_to_train, token_cosine

post_ln_attending = Case(
    says="Post-LN, 24 layers, without warmup fails to train while its tokens collapse onto each other",
    source="measured here; rank collapse: arXiv 2103.03404",
    model=Transformer(layers=24, width=32, norm="post", init=Xavier(gain=0.7)),
    task=Markov(vocab=32),
    optimizer=Adam(lr=1.8e-3),
    steps=100,
    expect=(fails_to_train(), token_cosine("last").at_least(0.99)),
    control=dict(attention=False),
)

post_ln_without_attention = post_ln_attending.but(
    says="the same model without attention trains: the residual weights are not the cause",
    attention=False,
    steps=150,
    expect=converges(),
    control=dict(attention=True),
)
