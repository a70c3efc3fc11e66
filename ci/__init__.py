"""Publishing from continuous integration; no part of the package."""
