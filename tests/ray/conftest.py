"""Where Ray is installed (`make test-ray`: .venv-train) these tests run; elsewhere they are not collected."""
import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("ray") else ["test_*.py"]
