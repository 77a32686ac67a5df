"""The corpus of fuzz/index holds records of the version that the decoder reads: it rejects all others at their first bytes."""
import re
import struct

import pytest

from paths import ROOT

CORPUS = sorted((ROOT / "tests/golden/fuzz/index").iterdir())


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_version(path):
    header = (ROOT / "daemon/index/record.h").read_text()
    magic = int(re.search(r"TRAJD_RECORD_MAGIC (0x\w+?)u", header)[1], 16)
    version = int(re.search(r"TRAJD_RECORD_VERSION (\d+)", header)[1])
    assert struct.unpack_from("<II", path.read_bytes(), 3) == (magic, version), "run tests/tools/make_record_corpus.py"
