"""What must hold about measured quantities: one file a family, data and judgement together."""
