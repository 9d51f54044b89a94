"""The asynchronous flavour."""
