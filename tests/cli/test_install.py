"""What `make install` brings is enough to build a program with."""
import os
import shutil
import subprocess

import pytest


@pytest.fixture
def installed(build, tmp_path):
    """An environment in which pkg-config knows a tree that was installed into a folder of its own."""
    subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--destdir", tmp_path / "tree"], check=True, capture_output=True)
    [module] = (tmp_path / "tree").rglob("stoker.pc")
    return {**os.environ, "PKG_CONFIG_LIBDIR": str(module.parent), "PKG_CONFIG_SYSROOT_DIR": str(tmp_path / "tree"),
            "LD_LIBRARY_PATH": str(module.parent.parent)}


@pytest.mark.skipif(not shutil.which("pkg-config"), reason="pkg-config is not installed")
def test_a_program_is_built_against_what_is_installed(installed, source, copy_sample, tmp_path):
    """As the comment in examples/minimal.c says."""
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "stoker"], env=installed, check=True, capture_output=True, text=True).stdout.split()
    subprocess.run(["cc", source / "examples/minimal.c", "-o", tmp_path / "minimal", *flags], check=True)
    done = subprocess.run([tmp_path / "minimal", copy_sample(tmp_path) / "stoker.yaml"], env=installed, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("23 batches, ")
