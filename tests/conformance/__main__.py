"""``python -m conformance``, which ``scripts/conformance`` runs."""

import os
import sys

from .arguments import arguments

asked = arguments()
from .command import run  # noqa: E402, after the arguments: it loads torch and its databases for seconds

code = run(asked)
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)  # libraries that the databases load print pages of their own leaks at an ordinary end
