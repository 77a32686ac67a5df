"""Configurations that `trajctl init` writes."""
import subprocess

from paths import TRAJCTL


def init(style, path, config):
    """Runs init and check. Returns the configuration."""
    preset = ["--preset", style] if style else []
    made = subprocess.run([TRAJCTL, "init", *preset, path, "-o", config], capture_output=True, text=True, timeout=60)
    assert made.returncode == 0, made.stderr
    config.write_text(config.read_text().replace("# color: rgb", "color: rgb"))
    checked = subprocess.run([TRAJCTL, "check", config], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    return config.read_text()
