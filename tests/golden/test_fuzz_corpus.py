"""The corpora that make_fuzz_corpus.py writes hold the forms that messages and files have. Those of layouts and of the configuration
may lack keys that are newer: a fuzzer needs some keys, not all."""
import importlib.util

import pytest

from paths import ROOT


def load_maker():
    spec = importlib.util.spec_from_file_location("make_fuzz_corpus", ROOT / "tests/tools/make_fuzz_corpus.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CORPORA = {path: content for path, content in load_maker().corpora().items() if not path.startswith(("layout/", "config/"))}


@pytest.mark.parametrize("path", sorted(CORPORA))
def test_file(path):
    assert (ROOT / "tests/golden/fuzz" / path).read_bytes() == CORPORA[path], "run tests/tools/make_fuzz_corpus.py"
