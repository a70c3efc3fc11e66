"""From Records to text: it words what was found, and never judges again."""
