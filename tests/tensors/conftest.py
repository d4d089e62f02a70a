from tensor_loaders import load  # noqa: F401
