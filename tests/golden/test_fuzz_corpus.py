"""The corpora that make_fuzz_corpus.py writes hold the forms that messages, layouts and keys have now."""
import importlib.util

import pytest

from paths import ROOT


def load_maker():
    spec = importlib.util.spec_from_file_location("make_fuzz_corpus", ROOT / "tests/tools/make_fuzz_corpus.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CORPORA = load_maker().corpora()


@pytest.mark.parametrize("path", sorted(CORPORA))
def test_file(path):
    assert (ROOT / "tests/golden/fuzz" / path).read_bytes() == CORPORA[path], "run tests/tools/make_fuzz_corpus.py"
