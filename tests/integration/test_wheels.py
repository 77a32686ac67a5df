"""The wheels to publish (`make wheels`), file by file, and the list of sources that they are built from."""
import ctypes
import hashlib
import io
import pathlib
import platform
import re
import subprocess
import sys
import zipfile

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.relocation import RelocationSection

from paths import ROOT
from published import published_wheel

PACKAGING = ROOT / "clients" / "python" / "packaging" / "wheels"
sys.path.insert(0, str(PACKAGING))
import wheel_sources  # noqa: E402

MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
# all that a program may load besides libtrajd; these are in every C library from 2.28 on
OURS = {"libtrajd.so.1", "libtrajd_kernels.so.1"}
SYSTEM = re.compile(r"(ld-linux-(x86-64|aarch64)|lib(c|m|dl|rt|pthread))\.so\.\d$")
R_X86_64_IRELATIVE = 37
RUNTIME = {"libcxx", "libcxxabi", "libunwind"}  # of C++, linked into each program with ZeroMQ


@pytest.fixture(scope="module", params=list(MACHINES))
def wheel(request):
    return request.param, published_wheel(request.param)


def programs(path):
    """Yields name and parsed ELF file of each program and library in a wheel."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            data = archive.read(name)
            if data[:4] == b"\x7fELF":
                yield name, ELFFile(io.BytesIO(data))


def needed(elf):
    return {tag.needed for section in elf.iter_sections() if isinstance(section, DynamicSection)
            for tag in section.iter_tags() if tag.entry.d_tag == "DT_NEEDED"}


def versions(elf):
    """Returns the versions of the C library whose symbols a program uses."""
    return {tuple(map(int, version.name.split("_")[1].split("."))) for section in elf.iter_sections()
            if isinstance(section, GNUVerNeedSection) for _, list_of in section.iter_versions() for version in list_of
            if re.fullmatch(r"GLIBC_[\d.]+", version.name)}


def test_programs_need_only_an_old_c_library(wheel):
    arch, path = wheel
    found = dict(programs(path))
    assert {name.split("/")[-1] for name in found} == {"_core.abi3.so", "trajctl", "trajd", "libtrajd.so.1",
                                                      "libtrajd_kernels.so.1", "trajd-decoder",
                                                      "trajd-decoder-avcodec.so", "trajd-indexer"}
    for name, elf in found.items():
        assert elf["e_machine"] == MACHINES[arch], name
        assert all(SYSTEM.match(library) or library in OURS for library in needed(elf)), name
        assert max(versions(elf)) <= (2, 28), name


def test_kernels_have_a_version_for_avx2(wheel):
    """The loader picks one of two versions for each relocation of the type IRELATIVE."""
    arch, path = wheel
    kernels = next(elf for name, elf in programs(path) if "libtrajd_kernels" in name)
    choices = [entry for section in kernels.iter_sections() if isinstance(section, RelocationSection)
               for entry in section.iter_relocations() if entry["r_info_type"] == R_X86_64_IRELATIVE]
    assert (len(choices) > 20) == (arch == "x86_64")


def test_the_processor_is_known(tmp_path):
    """Zig's library lacks this, so wheels have their own. The names here are others, because the compiler has these."""
    if platform.machine() != "x86_64":
        pytest.skip("this is not x86-64")
    library = tmp_path / "model.so"
    names = [f"-D__cpu_{name}=trajd_cpu_{name}" for name in ("model", "indicator_init")]
    subprocess.run(["cc", "-shared", "-fPIC", *names, PACKAGING / "cpu_model.c", "-o", library], check=True)
    features = (ctypes.c_uint * 4).in_dll(ctypes.CDLL(str(library)), "trajd_cpu_model")[3]
    flags = re.search(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)[1].split()
    assert features == ("avx2" in flags) << 10


def test_auditwheel_agrees_with_the_tag(wheel):
    arch, path = wheel
    assert path.name.endswith(f"-cp39-abi3-manylinux_2_28_{arch}.whl")
    done = subprocess.run([sys.executable, "-m", "auditwheel", "show", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    tag = re.search(r'following\s+platform\s+tag:\s+"manylinux_2_(\d+)_(\w+)"', done.stdout)
    assert tag and tag[2] == arch and int(tag[1]) <= 28, done.stdout


def test_each_library_has_its_licence(wheel):
    _, path = wheel
    with zipfile.ZipFile(path) as archive:
        texts = {name.split("/")[-1][:-4]: archive.read(name).decode() for name in archive.namelist() if "/licenses/" in name}
    assert set(wheel_sources.read_pins()) | RUNTIME <= set(texts)
    assert "LGPL" in texts["zeromq3"] and all(len(text) > 500 for text in texts.values())


def test_a_source_of_another_content_is_refused(tmp_path, monkeypatch):
    pins = tmp_path / "sources.txt"
    text = f"bookworm foo 1.0\n  {hashlib.sha256(b'good').hexdigest()} foo_1.0.dsc\n"
    pins.write_text(text)
    monkeypatch.setattr(wheel_sources, "PINS", pins)
    monkeypatch.setattr(wheel_sources, "read_pins", lambda read=wheel_sources.read_pins: read(pins))
    monkeypatch.setattr(wheel_sources, "apt_environment", lambda release, work: {})
    asked = []

    def deliver(words, env, folder):
        asked.append(words)
        (folder / "foo_1.0.dsc").write_bytes(b"other")

    monkeypatch.setattr(wheel_sources, "run_apt", deliver)
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "foo_1.0.dsc").write_bytes(b"good")
    assert list(wheel_sources.fetch(tmp_path / "sources")) == ["foo"] and not asked
    (tmp_path / "sources" / "foo_1.0.dsc").write_bytes(b"bad")
    with pytest.raises(SystemExit, match="foo_1.0.dsc: its SHA-256 is"):
        wheel_sources.fetch(tmp_path / "sources")
    assert asked[-1][-1] == "foo=1.0"
    pins.write_text(text + "what is this line for\n")
    with pytest.raises(SystemExit, match="sources.txt:3"):
        wheel_sources.fetch(tmp_path / "sources")
