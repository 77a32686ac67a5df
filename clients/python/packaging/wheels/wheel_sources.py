"""Fetches the source packages of sources.txt with the machine's apt, checks their SHA-256, and unpacks them.

Uses apt files of its own, so that the machine's settings stay as they are. The mirror is the one that the machine's
apt uses for Debian. A file that is already in the folder with the right SHA-256 is not fetched again.
"""
import hashlib
import os
import pathlib
import subprocess
import sys

PINS = pathlib.Path(__file__).with_name("sources.txt")


def read_pins(path=PINS):
    """Returns {package: {"release", "version", "files": {name: SHA-256}}}."""
    pins, files = {}, None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split("#")[0].split()
        if len(words) == 3 and not line.startswith(" "):
            files = {}
            pins[words[1]] = {"release": words[0], "version": words[2], "files": files}
        elif len(words) == 2 and files is not None and len(words[0]) == 64:
            files[words[1]] = words[0]
        elif words:
            sys.exit(f"{path}:{number}: expected RELEASE PACKAGE VERSION, or SHA-256 and FILE")
    return pins


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def is_complete(pin, folder):
    return all((folder / name).is_file() and digest(folder / name) == sha for name, sha in pin["files"].items())


def debian_mirror():
    form = "$(REPO_URI) $(ORIGIN) $(LABEL)"
    try:
        done = subprocess.run(["apt-get", "indextargets", "--format", form, "Created-By: Packages"],
                              capture_output=True, text=True)
    except FileNotFoundError:
        sys.exit("The wheels are built from Debian's source packages: apt-get is missing on this machine.")
    for line in done.stdout.splitlines():
        if line.endswith(" Debian Debian"):
            return line.split()[0]
    sys.exit("The wheels are built from Debian's source packages: apt has no Debian mirror on this machine.")


def apt_environment(release, work):
    """Writes apt files that know the source packages of one release, and returns the environment to use them."""
    folder = work / f"apt-{release}"
    for name in ("parts", "lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "parts" / "debian.sources").write_text(
        f"Types: deb-src\nURIs: {debian_mirror()}\nSuites: {release}\nComponents: main\n"
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n")
    (folder / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "{folder}/parts";\n'
        f'Dir::State::lists "{folder}/lists";\nDir::Cache "{folder}/cache";\n')
    return {**os.environ, "APT_CONFIG": str(folder / "apt.conf")}


def run_apt(words, env, folder):
    done = subprocess.run(["apt-get", "-qq", *words], env=env, cwd=folder, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"$ apt-get {' '.join(words)}\n{done.stdout}\nIf the mirror has a later version, write that one and "
                 f"its SHA-256 into {PINS.name}. Files that you put into {folder} are used, too.")


def fetch(folder):
    """Brings all files of sources.txt into the folder. Ends the program if a file has another SHA-256."""
    folder.mkdir(parents=True, exist_ok=True)
    pins = read_pins()
    missing = {name: pin for name, pin in pins.items() if not is_complete(pin, folder)}
    for release in sorted({pin["release"] for pin in missing.values()}):
        env = apt_environment(release, folder.parent)
        run_apt(["update"], env, folder)
        for name, pin in missing.items():
            if pin["release"] == release:
                run_apt(["source", "--download-only", "--only-source", f"{name}={pin['version']}"], env, folder)
    for pin in pins.values():
        for name, sha in pin["files"].items():
            if digest(folder / name) != sha:
                sys.exit(f"{folder / name}: its SHA-256 is {digest(folder / name)}, and {PINS.name} has {sha}")
    return pins


def unpack(folder, pins, out):
    """Unpacks each package with Debian's patches into out/PACKAGE."""
    out.mkdir(parents=True, exist_ok=True)
    for name, pin in pins.items():
        if not (out / name).exists():
            description = next(folder / file for file in pin["files"] if file.endswith(".dsc"))
            done = subprocess.run(["dpkg-source", "--no-check", "-x", description, out / name], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
            if done.returncode != 0:
                sys.exit(f"{description}:\n{done.stdout}")
