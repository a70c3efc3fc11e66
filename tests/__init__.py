"""Tests of the suite; a package, so that its helpers win over a stray `tests` of another distribution."""
