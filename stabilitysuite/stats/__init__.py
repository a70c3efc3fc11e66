"""Pure statistics: numbers in, numbers out; no case, no trace, no torch."""
