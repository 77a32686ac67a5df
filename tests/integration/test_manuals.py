"""Man pages and completions: they have every command, option and key of the programs, and a shell can read them."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from daemons import smallest_config
from installing import install
from paths import BUILD, PROGRAM, ROOT, TRAJCTL, clean_environment

pytestmark = pytest.mark.release
PAGES = {"trajd": ROOT / "daemon/trajd.8", "trajctl": ROOT / "clients/cli/trajctl.1", "config": BUILD / "systemd/trajd.yaml.5",
         "kernels": ROOT / "kernels/library/trajd_kernels.3"}
ENVIRONMENT = clean_environment() | {"PATH": f"{TRAJCTL.parent}:{PROGRAM.parent}:{os.environ['PATH']}"}


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=60)


def words(page):
    """Returns the words of a page as a reader sees them, options with their dashes."""
    source = PAGES[page].read_text()
    options = {"-" + name for name in re.findall(r"\bFl (-?[\w-]+)", source)}
    return options | set(re.findall(r"[\w/.:-]+", re.sub(r"(?m)^\.\\\".*$", "", source)))


def options(text):
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", text))


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_well_formed(page):
    if not shutil.which("man"):
        pytest.skip("man is not installed")
    done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", PAGES[page]], capture_output=True, text=True,
                          env={**ENVIRONMENT, "LC_ALL": "C.UTF-8", "MANROFFSEQ": ""})
    if "No such file" in done.stderr and "groff" in done.stderr:
        pytest.skip("groff is not installed")
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr


def test_the_daemons_options_are_told():
    told = words("trajd")
    for option in options(run(PROGRAM, "--help").stdout) | {"--help"}:
        assert option in told, f"daemon/trajd.8 lacks {option}"


def complete(line):
    """Returns the words that bash offers at the end of the line."""
    words = line.split(" ")
    script = (f"source {ROOT}/clients/cli/completions/trajctl.bash; COMP_WORDS=({' '.join(repr(w) for w in words)}); "
              f"COMP_CWORD={len(words) - 1}; _{words[0]}; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
    done = run("bash", "-c", script)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return set(done.stdout.split())


@pytest.mark.slow
def test_bash_completes(tmp_path, daemon, demo_file):
    commands = set(run(TRAJCTL, "names").stdout.split())
    assert complete("trajctl ") == commands | {"--help", "--version"}
    assert complete("trajctl st") == {"status", "stats"}
    assert {"--layout", "--json"} <= complete("trajctl inspect -")
    assert complete("trajctl inspect --layout robom") == {"robomimic", "robomimic@1", "robomind"}
    assert complete("trajctl stats train --format ") == {"trajd", "openpi", "lerobot"}
    assert complete("trajctl stats train --format = ") == complete("trajctl stats train --format =") == {"trajd", "openpi", "lerobot"}
    assert "--log-level" in complete("trajd --l") and complete("trajd --log-level d") == {"debug"}
    one = daemon(smallest_config(demo_file))
    assert "train" in complete(f"trajctl recv --endpoint {one.endpoint} ")
    assert "train" not in complete(f"trajctl recv --endpoint {tmp_path} t")
    assert str(one.endpoint) in complete(f"trajctl status --endpoint {str(one.endpoint)[:-1]}")
    for command in commands:  # every command has completions
        assert complete(f"trajctl {command} ") or complete(f"trajctl {command} -"), command


def test_zsh_reads_its_completion():
    if not shutil.which("zsh"):
        pytest.skip("zsh is not installed")
    done = run("zsh", "-f", "-c", "words=(trajctl st); CURRENT=2; service=trajctl; "
               f"compadd() {{ print -l -- \"$@\" }}; source {ROOT}/clients/cli/completions/trajctl.zsh")
    assert done.returncode == 0 and "status" in done.stdout.split(), done.stderr


def test_they_are_installed(tmp_path):
    install("/usr", DESTDIR=str(tmp_path))
    for path in ("man/man8/trajd.8", "man/man1/trajctl.1", "man/man5/trajd.yaml.5", "bash-completion/completions/trajctl",
                 "bash-completion/completions/trajd", "zsh/vendor-completions/_trajctl"):
        assert (tmp_path / "usr/share" / path).exists(), path
    assert pathlib.Path(tmp_path / "usr/share/bash-completion/completions/trajd").read_text().startswith("# Completion")
