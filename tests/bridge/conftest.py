"""Where Megatron-Bridge is installed (`make test-train`: .venv-bridge) these tests run; elsewhere they are not collected."""
import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("megatron") and importlib.util.find_spec("hydra") else ["test_*.py"]
