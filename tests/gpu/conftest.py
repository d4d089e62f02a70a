from tensor_loaders import config, index_dir, load  # noqa: F401
