"""python -m trajd COMMAND ...: runs trajctl. The command `doctor` also checks this Python."""
import subprocess
import sys

from . import doctor
from .launch import program

if __name__ == "__main__":
    if sys.argv[1:2] == ["doctor"]:
        sys.exit(doctor.run(sys.argv[2:]))
    sys.exit(subprocess.run([program("trajctl"), *sys.argv[1:]]).returncode)
