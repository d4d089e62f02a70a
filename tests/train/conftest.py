"""Where trainers are installed (`make test-train`: .venv-train) these tests run; elsewhere they are not collected."""
import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("accelerate") and importlib.util.find_spec("trl") else ["test_*.py"]
