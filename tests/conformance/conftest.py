"""Puts the package on the path of its tests, whether it is installed or not."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
