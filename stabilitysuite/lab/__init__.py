"""The only room that imports torch: models, tasks, probes, and the training loop."""
