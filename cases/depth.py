"""Two hundred layers: DeepNorm scales the stream and the initialisation, and does not stop where Post-LN does.

Source: kexue.fm/archives/8978 and Wang et al., 2022 (arXiv 2203.00555): alpha = (2N)^(1/4) on the stream, and the gain
(2N)^(-1/4) on value, output and feed-forward matrices (the paper's (8N)^(-1/4) is slower here: progress 0.41 at step 40
at learning rate 2e-3). A first-order chain needs no depth, so what these cases say is the contrast; that deep layers
learn is said on a chain of lag 2 at 24 layers. Measured here: neither factor alone is enough at 200 layers.
"""

from stabilitysuite import Adam, Case, Markov, Transformer, Xavier, converges, fails_to_train


def _deepnorm(layers: int, ffn: int) -> Transformer:
    gain = (2 * layers) ** -0.25
    return Transformer(
        layers=layers,
        width=32,
        ffn=ffn,
        norm="post",
        residual_scale=1 / gain,
        init=Xavier(value=gain, output=gain, ffn_in=gain, ffn_out=gain),
    )


deepnorm_200 = Case(
    says="DeepNorm, 200 layers, converges without warmup",
    source="kexue.fm/archives/8978; arXiv 2203.00555",
    model=_deepnorm(200, ffn=2),
    task=Markov(vocab=32, batch=8),
    optimizer=Adam(lr=1e-3),
    steps=80,
    expect=converges(),
    control=dict(init=Xavier()),
)

post_ln_200 = Case(
    says="plain Post-LN, 200 layers, fails to train at the same rate: it stays on the plateau",
    source="kexue.fm/archives/8978; arXiv 2203.00555",
    model=Transformer(layers=200, width=32, ffn=2, norm="post"),
    task=Markov(vocab=32, batch=8),
    optimizer=Adam(lr=1e-3),
    steps=80,
    expect=fails_to_train(),
    control=dict(norm="pre"),
)

deepnorm_24_attending = Case(
    says="DeepNorm, 24 layers, converges without warmup where only attention can leave the plateau",
    source="kexue.fm/archives/8978; arXiv 2203.00555",
    model=_deepnorm(24, ffn=4),
    task=Markov(vocab=32, lag=2),
    optimizer=Adam(lr=1.4e-3),
    steps=450,
    expect=converges(),
    control=dict(attention=False),
)
